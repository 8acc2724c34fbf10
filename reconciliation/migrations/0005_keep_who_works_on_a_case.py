"""Keep who works on a case until when, and who has its page open. Two new tables; nothing that is there is touched."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0004_keep_notices_of_providers"),
    ]

    operations = [
        migrations.CreateModel(
            name="CaseClaim",
            fields=[
                (
                    "case",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="claim",
                        serialize=False,
                        to="reconciliation.case",
                    ),
                ),
                ("number", models.IntegerField(default=1)),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("claimed_at", models.DateTimeField()),
                ("used_at", models.DateTimeField()),
                ("until_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("number__gte", 1)), name="case_claim_numbered_from_one"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("actor", ""), _negated=True), name="case_claim_is_somebodys"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("until_at__gte", models.F("claimed_at")),
                            ("used_at__gte", models.F("claimed_at")),
                        ),
                        name="case_claim_ends_after_it_began",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CasePresence",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("seen_at", models.DateTimeField()),
                (
                    "case",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="presences",
                        to="reconciliation.case",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("case", "actor"), name="case_presence_once_for_each")
                ],
            },
        ),
    ]
