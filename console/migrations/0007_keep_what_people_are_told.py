"""Keep what people are told outside the console, when parts of the deployment last worked, and counts of the log."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0006_file_the_effect_history"),
        ("runs", "0010_wait_for_a_kept_version"),
    ]

    operations = [
        migrations.CreateModel(
            name="Channel",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("medium", models.CharField(max_length=10)),
                ("address", models.CharField(blank=True, max_length=320)),
                (
                    "happenings",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=30), default=list, size=None
                    ),
                ),
                (
                    "state",
                    models.CharField(default="on", max_length=10),
                ),
                ("made_by", models.CharField(max_length=100)),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "person",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="channels",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="channels",
                        to="runs.team",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CountingProgress",
            fields=[
                ("through_leaf", models.BigIntegerField(default=0)),
                ("through_at", models.DateTimeField(null=True)),
                ("settled_leaf", models.BigIntegerField(default=0)),
                ("settled_at", models.DateTimeField(null=True)),
                ("noted_leaf", models.BigIntegerField(default=0)),
                ("noted_at", models.DateTimeField(null=True)),
                ("noted_xid", models.BigIntegerField(default=0)),
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="counting_progress_one_row")
                ],
            },
        ),
        migrations.CreateModel(
            name="LogCount",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("action", models.CharField(max_length=100)),
                ("actor_kind", models.CharField(blank=True, max_length=20)),
                ("finding", models.CharField(blank=True, max_length=20)),
                ("count", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("action", "actor_kind", "finding"), name="log_count_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("subject", models.CharField(max_length=200)),
                ("content", models.JSONField()),
                ("count", models.IntegerField()),
                (
                    "state",
                    models.CharField(default="waiting", max_length=10),
                ),
                ("attempts_count", models.IntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(null=True)),
                ("claim", models.CharField(blank=True, max_length=40)),
                ("claimed_until_at", models.DateTimeField(null=True)),
                ("because", models.CharField(blank=True, max_length=300)),
                ("made_at", models.DateTimeField()),
                ("tried_from_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="messages",
                        to="console.channel",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.team",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="NotificationProgress",
            fields=[
                ("through_leaf", models.BigIntegerField(default=0)),
                ("through_at", models.DateTimeField(null=True)),
                ("settled_leaf", models.BigIntegerField(default=0)),
                ("settled_at", models.DateTimeField(null=True)),
                ("noted_leaf", models.BigIntegerField(default=0)),
                ("noted_at", models.DateTimeField(null=True)),
                ("noted_xid", models.BigIntegerField(default=0)),
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("id", 1)), name="notification_progress_one_row"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Occurrence",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("happening", models.CharField(max_length=30)),
                ("subject", models.CharField(max_length=100)),
                ("mark", models.CharField(blank=True, max_length=40)),
                ("team_slug", models.CharField(max_length=100)),
                ("case_ref", models.CharField(blank=True, max_length=40)),
                ("provider_slug", models.CharField(blank=True, max_length=100)),
                ("flow_name", models.CharField(blank=True, max_length=100)),
                ("actor", models.CharField(blank=True, max_length=100)),
                ("ends_at", models.DateTimeField(null=True)),
                ("happened_at", models.DateTimeField()),
                ("noted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["noted_at"], name="occurrence_to_forget")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("subject", "happening", "mark", "team_slug"), name="occurrence_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "happening__in",
                                [
                                    "needs_decision",
                                    "key_ends_soon",
                                    "time_limit_passed",
                                    "approval_requested",
                                    "approval_ends_soon",
                                    "conflict",
                                    "breaker_open",
                                ],
                            )
                        ),
                        name="occurrence_happening_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("team_slug", models.CharField(max_length=100)),
                (
                    "state",
                    models.CharField(default="waiting", max_length=20),
                ),
                ("because", models.CharField(blank=True, max_length=300)),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "channel",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notifications",
                        to="console.channel",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notifications",
                        to="console.message",
                    ),
                ),
                (
                    "occurrence",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notifications",
                        to="console.occurrence",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Pulse",
            fields=[
                ("part", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("part__in", ["sweeper", "worker"])), name="pulse_part_known"
                    )
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("person__isnull", True),
                        ("team__isnull", False),
                        models.Q(("address", ""), _negated=True),
                    ),
                    models.Q(
                        ("address", ""),
                        ("medium", "email"),
                        ("person__isnull", False),
                        ("team__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="channel_of_a_team_or_a_person",
            ),
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.UniqueConstraint(
                condition=models.Q(("team__isnull", False), models.Q(("state", "removed"), _negated=True)),
                fields=("team", "medium", "address"),
                name="channel_once_in_team",
            ),
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.UniqueConstraint(
                condition=models.Q(("person__isnull", False)),
                fields=("person",),
                name="channel_once_per_person",
            ),
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.CheckConstraint(
                condition=models.Q(("medium__in", ["email", "webhook"])), name="channel_medium_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["on", "off", "removed"])), name="channel_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "happenings__contained_by",
                        [
                            "needs_decision",
                            "key_ends_soon",
                            "time_limit_passed",
                            "approval_requested",
                            "approval_ends_soon",
                            "conflict",
                            "breaker_open",
                        ],
                    )
                ),
                name="channel_happenings_known",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("state", "waiting")), fields=["next_attempt_at", "id"], name="message_due"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["channel", "-made_at", "-id"], name="message_of_channel"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["team", "-made_at", "-id"], name="message_of_team"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("state", "failed")),
                fields=["team", "-made_at", "-id"],
                name="message_failed",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["made_at"], name="message_to_forget"),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["waiting", "sent", "failed", "dropped"])),
                name="message_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", True), ("next_attempt_at__isnull", False), ("state", "waiting")
                    ),
                    models.Q(
                        models.Q(("state", "waiting"), _negated=True),
                        ("claim", ""),
                        ("ended_at__isnull", False),
                        ("next_attempt_at__isnull", True),
                        ("claimed_until_at__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="message_ended_has_its_time",
            ),
        ),
        migrations.AddIndex(
            model_name="notification",
            index=models.Index(
                condition=models.Q(("state", "waiting")),
                fields=["channel", "team_slug", "id"],
                name="notification_waiting",
            ),
        ),
        migrations.AddConstraint(
            model_name="notification",
            constraint=models.UniqueConstraint(
                fields=("occurrence", "channel"), name="notification_once_per_channel"
            ),
        ),
        migrations.AddConstraint(
            model_name="notification",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["waiting", "packed", "overtaken", "not_for_them"])),
                name="notification_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="notification",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("message__isnull", False), ("state", "packed")),
                    models.Q(models.Q(("state", "packed"), _negated=True), ("message__isnull", True)),
                    _connector="OR",
                ),
                name="notification_packed_has_its_message",
            ),
        ),
    ]
