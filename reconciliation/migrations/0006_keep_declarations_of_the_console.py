"""Providers that administrators declare in the console: rows that are added and never changed, by anybody.

As for what is tightened: no privilege to change them, and triggers that refuse the owner too.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

REFUSE = """
CREATE FUNCTION reconciliation_declarations_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what was declared is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER reconciliation_declaration_no_change BEFORE UPDATE OR DELETE ON reconciliation_declaration
    FOR EACH ROW EXECUTE FUNCTION reconciliation_declarations_refuse();
CREATE TRIGGER reconciliation_declaration_no_truncate BEFORE TRUNCATE ON reconciliation_declaration
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_declarations_refuse();
"""

ALLOW = """
DROP TRIGGER reconciliation_declaration_no_truncate ON reconciliation_declaration;
DROP TRIGGER reconciliation_declaration_no_change ON reconciliation_declaration;
DROP FUNCTION reconciliation_declarations_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0005_keep_who_works_on_a_case"),
    ]

    operations = [
        migrations.CreateModel(
            name="Declaration",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("account", models.CharField(max_length=100)),
                ("number", models.IntegerField()),
                ("text", models.TextField()),
                ("reason", models.TextField()),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account", "number"), name="declaration_number_once_in_account"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("number__gte", 1)), name="declaration_numbered_from_one"
                    ),
                ],
            },
        ),
        migrations.RunSQL(sql=REFUSE, reverse_sql=ALLOW),
    ]
