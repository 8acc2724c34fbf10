"""Keep what lookups may do in the database: each account's limiter and breaker, counts, and what the sweeper
fails on. Claims get a number, and an index finds what is due at one account.

The two indexes are built under a lock that stops writes to the table of cases for the length of one scan.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0002_tighten_contracts"),
        ("runs", "0004_leaves_by_people"),
    ]

    operations = [
        migrations.CreateModel(
            name="AccountGate",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="gate",
                        serialize=False,
                        to="runs.provideraccount",
                    ),
                ),
                ("next_slot_at", models.DateTimeField(null=True)),
                ("paused_until_at", models.DateTimeField(null=True)),
                ("paused_because", models.CharField(blank=True, max_length=300)),
                ("breaker_state", models.CharField(default="closed", max_length=10)),
                ("breaker_failures_count", models.IntegerField(default=0)),
                ("breaker_openings_count", models.IntegerField(default=0)),
                ("breaker_since_at", models.DateTimeField(null=True)),
                ("breaker_probe_at", models.DateTimeField(null=True)),
                ("breaker_probe", models.CharField(blank=True, max_length=40)),
                ("breaker_probe_until_at", models.DateTimeField(null=True)),
                ("failed_because", models.CharField(blank=True, max_length=300)),
                ("failed_at", models.DateTimeField(null=True)),
                ("wave", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="LookupTally",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute_at", models.DateTimeField()),
                ("asked_count", models.IntegerField(default=0)),
                ("answered_count", models.IntegerField(default=0)),
                ("failed_count", models.IntegerField(default=0)),
                ("told_to_wait_count", models.IntegerField(default=0)),
                ("settled_count", models.IntegerField(default=0)),
                ("handed_over_count", models.IntegerField(default=0)),
                ("duration_ms_sum", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="SweepFailure",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("step", models.CharField(max_length=100)),
                ("subject", models.CharField(max_length=40)),
                ("failures_count", models.IntegerField()),
                ("not_before_at", models.DateTimeField()),
                ("error", models.CharField(max_length=300)),
                ("failed_at", models.DateTimeField()),
            ],
        ),
        migrations.RemoveIndex(
            model_name="case",
            name="case_lookup_due",
        ),
        migrations.AddField(
            model_name="case",
            name="lookup_claim_number",
            field=models.IntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="case",
            name="lookups_lost_count",
            field=models.IntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="case",
            name="parked_because",
            field=models.CharField(blank=True, db_default="", max_length=300),
        ),
        migrations.AddIndex(
            model_name="case",
            index=models.Index(
                condition=models.Q(("next_lookup_at__isnull", False)),
                fields=["provider_slug", "next_lookup_at", "id"],
                name="case_lookup_due_here",
            ),
        ),
        migrations.AddIndex(
            model_name="case",
            index=models.Index(
                condition=models.Q(("lookup_claim", ""), _negated=True),
                fields=["provider_slug", "lookup_claimed_until_at"],
                name="case_lookup_under_way",
            ),
        ),
        migrations.AddConstraint(
            model_name="accountgate",
            constraint=models.CheckConstraint(
                condition=models.Q(("breaker_state__in", ["closed", "open", "half_open"])),
                name="gate_breaker_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="accountgate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("breaker_probe_at__isnull", False),
                        ("breaker_since_at__isnull", False),
                        ("breaker_state", "open"),
                    ),
                    models.Q(
                        models.Q(("breaker_state", "open"), _negated=True), ("breaker_probe_at__isnull", True)
                    ),
                    _connector="OR",
                ),
                name="gate_open_says_until_when",
            ),
        ),
        migrations.AddConstraint(
            model_name="accountgate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("breaker_state", "half_open"),
                    models.Q(("breaker_probe", ""), ("breaker_probe_until_at__isnull", True)),
                    _connector="OR",
                ),
                name="gate_probe_only_half_open",
            ),
        ),
        migrations.AddField(
            model_name="lookuptally",
            name="account",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.provideraccount",
            ),
        ),
        migrations.AddConstraint(
            model_name="sweepfailure",
            constraint=models.UniqueConstraint(
                fields=("step", "subject"), name="sweep_failure_once_per_subject"
            ),
        ),
        migrations.AddConstraint(
            model_name="lookuptally",
            constraint=models.UniqueConstraint(
                fields=("account", "minute_at"), name="tally_minute_once_per_account"
            ),
        ),
    ]
