"""Keep what people attach to cases: bytes that are added and never changed, by anybody.

The application's role may add and read them (`manage.py migrate` sees to that); these triggers stand behind
the privileges and refuse the owner too.
"""

import django.db.models.deletion
from django.db import migrations, models


REFUSE = """
CREATE FUNCTION reconciliation_attachments_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'attachments are append-only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER reconciliation_caseattachment_no_change
    BEFORE UPDATE OR DELETE ON reconciliation_caseattachment
    FOR EACH ROW EXECUTE FUNCTION reconciliation_attachments_refuse();
CREATE TRIGGER reconciliation_caseattachment_no_truncate
    BEFORE TRUNCATE ON reconciliation_caseattachment
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_attachments_refuse();
"""

ALLOW = """
DROP TRIGGER reconciliation_caseattachment_no_truncate ON reconciliation_caseattachment;
DROP TRIGGER reconciliation_caseattachment_no_change ON reconciliation_caseattachment;
DROP FUNCTION reconciliation_attachments_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0010_end_a_claim_that_was_the_next_by_leaving"),
        ("runs", "0008_freeze_sending_after_a_restore"),
    ]

    operations = [
        migrations.CreateModel(
            name="CaseAttachment",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(blank=True, max_length=200)),
                ("media_type", models.CharField(max_length=40)),
                ("content", models.BinaryField()),
                ("length", models.IntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("key", models.CharField(max_length=64)),
                ("made_at", models.DateTimeField()),
                (
                    "case",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="attachments",
                        to="reconciliation.case",
                    ),
                ),
                (
                    "evidence",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="attachment",
                        to="runs.evidence",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("actor", "key"), name="case_attachment_key_once_per_actor"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "media_type__in",
                                [
                                    "text/plain",
                                    "application/json",
                                    "image/png",
                                    "image/jpeg",
                                    "application/pdf",
                                ],
                            )
                        ),
                        name="case_attachment_type_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("length__gte", 1), ("length__lte", 2097152)),
                        name="case_attachment_bounded",
                    ),
                ],
            },
        ),
        migrations.RunSQL(sql=REFUSE, reverse_sql=ALLOW),
    ]
