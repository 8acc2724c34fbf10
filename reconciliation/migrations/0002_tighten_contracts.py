"""What administrators tighten: rows that are added and never changed, by anybody.

The application's role has no UPDATE, DELETE or TRUNCATE on the table (`manage.py migrate` sees to that);
these triggers stand behind the privileges and refuse the owner too.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

REFUSE = """
CREATE FUNCTION reconciliation_contracts_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what was tightened is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER reconciliation_tightening_no_change BEFORE UPDATE OR DELETE ON reconciliation_tightening
    FOR EACH ROW EXECUTE FUNCTION reconciliation_contracts_refuse();
CREATE TRIGGER reconciliation_tightening_no_truncate BEFORE TRUNCATE ON reconciliation_tightening
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_contracts_refuse();
"""

ALLOW = """
DROP TRIGGER reconciliation_tightening_no_truncate ON reconciliation_tightening;
DROP TRIGGER reconciliation_tightening_no_change ON reconciliation_tightening;
DROP FUNCTION reconciliation_contracts_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Tightening",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("account", models.CharField(max_length=100)),
                ("number", models.IntegerField()),
                ("values", models.JSONField()),
                ("reason", models.TextField()),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account", "number"), name="tightening_number_once_in_account"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("number__gte", 1)), name="tightening_numbered_from_one"
                    ),
                ],
            },
        ),
        migrations.RunSQL(sql=REFUSE, reverse_sql=ALLOW),
    ]
