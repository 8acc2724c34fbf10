"""Keep the providers' own notices: signed ones once by id and once by content, the others as counts by hour.

Two new tables; nothing that is there is touched.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0003_keep_lookups_to_their_limits"),
        ("runs", "0004_leaves_by_people"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookRefusals",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("provider_slug", models.CharField(max_length=100)),
                ("reason", models.CharField(max_length=20)),
                ("hour_at", models.DateTimeField()),
                ("count", models.BigIntegerField(default=1)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("last_digest", models.CharField(blank=True, max_length=64)),
                ("last_length", models.BigIntegerField(default=0)),
                ("last_from", models.CharField(blank=True, max_length=45)),
            ],
            options={
                "indexes": [models.Index(fields=["-hour_at", "-id"], name="webhook_refusals_latest")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("provider_slug", "reason", "hour_at"), name="webhook_refusals_once_an_hour"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("reason__in", ["forged", "stale", "oversized", "not_ready", "other_type"])
                        ),
                        name="webhook_refusal_reason_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookEvent",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("provider_slug", models.CharField(max_length=100)),
                ("event_id", models.CharField(max_length=255)),
                ("event_type", models.CharField(blank=True, max_length=100)),
                ("outcome", models.CharField(max_length=20)),
                ("summary", models.CharField(max_length=500)),
                ("reference", models.CharField(blank=True, max_length=300)),
                ("body_digest", models.CharField(max_length=64)),
                ("body_length", models.BigIntegerField()),
                ("signed_at", models.DateTimeField(null=True)),
                ("received_at", models.DateTimeField()),
                ("deliveries_count", models.IntegerField(default=1)),
                ("last_delivered_at", models.DateTimeField()),
                (
                    "evidence",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="webhook",
                        to="runs.evidence",
                    ),
                ),
                (
                    "operation",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="webhooks",
                        to="runs.operation",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["provider_slug", "-received_at", "-id"], name="webhook_latest"),
                    models.Index(
                        condition=models.Q(("operation__isnull", True)),
                        fields=["received_at"],
                        name="webhook_to_forget",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("provider_slug", "event_id"), name="webhook_id_once"),
                    models.UniqueConstraint(
                        fields=("provider_slug", "body_digest"), name="webhook_content_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", ["evidence", "unmatched", "unreadable"])),
                        name="webhook_outcome_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("operation__isnull", False), ("outcome", "evidence")),
                            models.Q(
                                models.Q(("outcome", "evidence"), _negated=True),
                                ("evidence__isnull", True),
                                ("operation__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="webhook_evidence_has_its_operation",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("deliveries_count__gte", 1)),
                        name="webhook_delivered_once_or_more",
                    ),
                ],
            },
        ),
    ]
