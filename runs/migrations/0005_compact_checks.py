"""Check as much as before at half the cost of an update, and keep no index twice.

PostgreSQL sets every CHECK up anew for every statement that writes its table, so the rows that each effect
writes have few, compact ones. The pattern indexes that Django makes beside a unique one serve LIKE in
databases whose collation isn't C; nothing here asks that way, and each effect wrote seven of them.
"""

import django.db.models.lookups
import runs.constraints
from django.db import migrations, models


DROP_PATTERN_INDEXES = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN
        SELECT indexrelid::regclass::text FROM pg_index
        WHERE indrelid IN ('runs_run'::regclass, 'runs_operation'::regclass, 'runs_attempt'::regclass,
                           'runs_receipt'::regclass)
          AND indexrelid::regclass::text ~ '_like$'
    LOOP
        EXECUTE 'DROP INDEX ' || name;
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0004_leaves_by_people"),
    ]

    operations = [
        migrations.RunSQL(sql=DROP_PATTERN_INDEXES, reverse_sql=migrations.RunSQL.noop),
        migrations.RemoveIndex(model_name="operation", name="operation_by_key"),
        migrations.RemoveConstraint(model_name="operation", name="operation_key_once_at_provider"),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.UniqueConstraint(
                fields=("key", "provider"), name="operation_key_once_at_provider"
            ),
        ),
        migrations.RemoveConstraint(
            model_name="attempt",
            name="attempt_outcome_known",
        ),
        migrations.RemoveConstraint(
            model_name="attempt",
            name="attempt_end_has_its_time",
        ),
        migrations.RemoveConstraint(
            model_name="attempt",
            name="attempt_executor_known",
        ),
        migrations.RemoveConstraint(
            model_name="operation",
            name="operation_state_known",
        ),
        migrations.RemoveConstraint(
            model_name="operation",
            name="operation_settled_has_its_time",
        ),
        migrations.RemoveConstraint(
            model_name="operation",
            name="operation_sent_has_its_time",
        ),
        migrations.RemoveConstraint(
            model_name="operation",
            name="operation_reservation_known",
        ),
        migrations.RemoveConstraint(
            model_name="operation",
            name="operation_amount_whole",
        ),
        migrations.RemoveConstraint(
            model_name="operation",
            name="operation_reserved_only_while_reserved",
        ),
        migrations.RemoveConstraint(
            model_name="operation",
            name="operation_doubt_only_when_sent",
        ),
        migrations.RemoveConstraint(
            model_name="receipt",
            name="receipt_has_reference",
        ),
        migrations.RemoveConstraint(
            model_name="receipt",
            name="receipt_match_known",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_state_known",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_ended_has_its_time",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_paused_has_reasons",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_lease_whole_and_only_when_open",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_turn_settled_within_calls",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_in_doubt_not_negative",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_budget_parts_not_negative",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_budget_limit_has_currency",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_pause_reasons_known",
        ),
        migrations.RemoveConstraint(
            model_name="run",
            name="run_turn_order_known",
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    runs.constraints.OneOf(
                        "outcome", ["open", "receipt", "rejected", "not_sent", "unknown", "unreported"]
                    ),
                    runs.constraints.OneOf("executor", ["agent", "console"]),
                    django.db.models.lookups.Exact(
                        django.db.models.lookups.Exact(models.F("outcome"), "open"),
                        django.db.models.lookups.IsNull(models.F("ended_at"), True),
                    ),
                ),
                name="attempt_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    runs.constraints.OneOf(
                        "state", ["ready", "sent_unknown", "confirmed", "rejected", "abandoned"]
                    ),
                    django.db.models.lookups.Exact(
                        runs.constraints.OneOf("state", ["confirmed", "rejected", "abandoned"]),
                        django.db.models.lookups.IsNull(models.F("settled_at"), False),
                    ),
                    models.Q(
                        ("first_sent_at__isnull", False),
                        models.Q(
                            runs.constraints.OneOf("state", ["sent_unknown", "rejected"]), _negated=True
                        ),
                        _connector="OR",
                    ),
                    models.Q(("in_doubt_since_at__isnull", True), ("state", "sent_unknown"), _connector="OR"),
                ),
                name="operation_state_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    django.db.models.lookups.Exact(
                        django.db.models.lookups.Exact(models.F("amount_currency"), ""),
                        django.db.models.lookups.IsNull(models.F("amount_minor"), True),
                    ),
                    models.Q(("amount_minor__isnull", True), ("amount_minor__gte", 0), _connector="OR"),
                    runs.constraints.OneOf(
                        "reservation", ["none", "reserved", "settled", "released", "held"]
                    ),
                    ("reserved_minor__gte", 0),
                    models.Q(("reservation", "reserved"), ("reserved_minor", 0), _connector="OR"),
                ),
                name="operation_amount_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="receipt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("reference", ""), _negated=True),
                    runs.constraints.OneOf("matched_by", ["key", "reference", "reply_only", "person"]),
                ),
                name="receipt_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    runs.constraints.OneOf("state", ["open", "paused", "completed", "abandoned"]),
                    django.db.models.lookups.Exact(
                        runs.constraints.OneOf("state", ["completed", "abandoned"]),
                        django.db.models.lookups.IsNull(models.F("ended_at"), False),
                    ),
                    django.db.models.lookups.Exact(
                        django.db.models.lookups.Exact(models.F("state"), "paused"),
                        django.db.models.lookups.IsNull(models.F("paused_at"), False),
                    ),
                    django.db.models.lookups.Exact(
                        django.db.models.lookups.Exact(models.F("state"), "paused"),
                        runs.constraints.NotEmpty("paused_reasons"),
                    ),
                    runs.constraints.AllOf(
                        "paused_reasons", ["outcome", "budget", "approval", "flow_version", "frozen"]
                    ),
                    django.db.models.lookups.Exact(
                        django.db.models.lookups.IsNull(models.F("lease_token"), False),
                        django.db.models.lookups.IsNull(models.F("lease_expires_at"), False),
                    ),
                    models.Q(("lease_token__isnull", True), ("state", "open"), _connector="OR"),
                ),
                name="run_state_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    runs.constraints.OneOf("turn_parallel", ["ordered", "parallel"]),
                    ("in_doubt_count__gte", 0),
                    ("turn_settled__gte", 0),
                    ("turn_settled__lte", models.F("turn_calls")),
                    ("budget_held_minor__gte", 0),
                    ("budget_reserved_minor__gte", 0),
                    ("budget_spent_minor__gte", 0),
                    models.Q(
                        ("budget_limit_minor__isnull", True),
                        models.Q(("budget_currency", ""), _negated=True),
                        _connector="OR",
                    ),
                ),
                name="run_counters_whole",
            ),
        ),
    ]
