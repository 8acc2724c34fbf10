"""Keep each case's payload digest with it, and the indexes by which related cases are found.

A new column with a default takes a lock for a moment; the rows that are there are filled in one statement,
and the indexes are built without stopping anybody.
"""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

FILL = """
UPDATE reconciliation_case SET payload_digest = operation.payload_digest
FROM runs_operation AS operation
WHERE operation.id = reconciliation_case.operation_id AND reconciliation_case.payload_digest = '';
"""


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("reconciliation", "0011_keep_what_people_attach_to_cases"),
    ]

    operations = [
        migrations.AddField(
            model_name="case",
            name="payload_digest",
            field=models.CharField(blank=True, db_default="", max_length=64),
        ),
        migrations.RunSQL(sql=FILL, reverse_sql=migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="case",
            index=models.Index(
                condition=models.Q(("payload_digest", ""), _negated=True),
                fields=["team", "payload_digest", "-opened_at", "-id"],
                name="case_by_payload",
            ),
        ),
        AddIndexConcurrently(
            model_name="case",
            index=models.Index(
                fields=["team", "provider_slug", "-opened_at", "-id"], name="case_by_provider"
            ),
        ),
    ]
