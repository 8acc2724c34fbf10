"""Let evidence be the answer to a request that makes an effect absent, and say that it is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0011_name_the_teams_of_accounts")]

    operations = [
        migrations.RemoveConstraint(model_name="evidence", name="evidence_kind_known"),
        migrations.RemoveConstraint(model_name="evidence", name="evidence_claim_known"),
        migrations.AddConstraint(
            model_name="evidence",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            "report",
                            "late_report",
                            "stray_report",
                            "lookup",
                            "webhook",
                            "attachment",
                            "make_absent",
                        ],
                    )
                ),
                name="evidence_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="evidence",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("claim__in", ["receipt", "rejection", "not_sent", "unknown", "finding", "absent"])
                ),
                name="evidence_claim_known",
            ),
        ),
    ]
