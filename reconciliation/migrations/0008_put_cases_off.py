"""Keep until when a case is put off, by whom and why.

A new column without a default and an index over no row yet: both take a lock on the table of cases for a
moment, the check for the length of one scan.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0007_keep_notes_on_cases"),
    ]

    operations = [
        migrations.CreateModel(
            name="CaseSnooze",
            fields=[
                (
                    "case",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="snooze",
                        serialize=False,
                        to="reconciliation.case",
                    ),
                ),
                ("until_at", models.DateTimeField()),
                ("reason", models.TextField()),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("made_at", models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name="case",
            name="snoozed_until_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="case",
            index=models.Index(
                condition=models.Q(("snoozed_until_at__isnull", False)),
                fields=["team", "worsens_at", "-at_risk_minor", "id"],
                name="case_put_off",
            ),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("snoozed_until_at__isnull", True),
                    models.Q(("kind", "unknown"), ("state", "needs_decision")),
                    _connector="OR",
                ),
                name="case_sleeps_only_where_it_may",
            ),
        ),
        migrations.AddConstraint(
            model_name="casesnooze",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason", ""), _negated=True), name="case_snooze_says_why"
            ),
        ),
        migrations.AddConstraint(
            model_name="casesnooze",
            constraint=models.CheckConstraint(
                condition=models.Q(("until_at__gt", models.F("made_at"))), name="case_snooze_ends_later"
            ),
        ),
    ]
