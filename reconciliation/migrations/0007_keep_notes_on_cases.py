"""Keep notes on cases: rows that are added and never changed, by anybody.

The application's role may add and read them (`manage.py migrate` sees to that); these triggers stand behind
the privileges and refuse the owner too.
"""

import django.db.models.deletion
from django.db import migrations, models


REFUSE = """
CREATE FUNCTION reconciliation_notes_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'notes on cases are append-only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER reconciliation_casenote_no_change BEFORE UPDATE OR DELETE ON reconciliation_casenote
    FOR EACH ROW EXECUTE FUNCTION reconciliation_notes_refuse();
CREATE TRIGGER reconciliation_casenote_no_truncate BEFORE TRUNCATE ON reconciliation_casenote
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_notes_refuse();
"""

ALLOW = """
DROP TRIGGER reconciliation_casenote_no_truncate ON reconciliation_casenote;
DROP TRIGGER reconciliation_casenote_no_change ON reconciliation_casenote;
DROP FUNCTION reconciliation_notes_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0006_keep_declarations_of_the_console"),
    ]

    operations = [
        migrations.CreateModel(
            name="CaseNote",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("text", models.TextField()),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("key", models.CharField(max_length=64)),
                ("made_at", models.DateTimeField()),
                (
                    "case",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="notes",
                        to="reconciliation.case",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["case", "-made_at", "-id"], name="case_note_latest")],
                "constraints": [
                    models.UniqueConstraint(fields=("actor", "key"), name="case_note_key_once_per_actor"),
                    models.CheckConstraint(
                        condition=models.Q(("text", ""), _negated=True), name="case_note_says_something"
                    ),
                ],
            },
        ),
        migrations.RunSQL(sql=REFUSE, reverse_sql=ALLOW),
    ]
