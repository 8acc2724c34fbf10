"""Check a value where it is written, and a run's state where it changes: an effect then checks half as much.

PostgreSQL reads every CHECK of a table anew for each statement that writes it, whatever the statement changes.
A domain is kept ready for as long as a connection lasts, and only a column that is assigned is checked against
it; an AFTER trigger on named columns costs nothing to a statement that names none of them. Both refuse whatever
a CHECK would, by the same class of error. `ALTER COLUMN … TYPE` would take a column's domain from it: the tests
of what the database refuses would tell.

The tables are written anew once, under a lock that stops reads and writes of them meanwhile.
"""

import django.db.models.lookups
import runs.constraints
from django.db import migrations, models

# Domain: what it is made of, and the limit's name and condition.
DOMAINS = {
    "minor_units": ("bigint", "minor_units_not_negative", "VALUE >= 0"),
    "whole_count": ("integer", "whole_count_not_negative", "VALUE >= 0"),
    "run_turn_order": ("varchar(10)", "run_turn_order_known", "VALUE = ANY('{ordered,parallel}'::text[])"),
    "operation_state": (
        "varchar(20)",
        "operation_state_known",
        "VALUE = ANY('{ready,sent_unknown,confirmed,rejected,abandoned}'::text[])",
    ),
    "operation_reservation": (
        "varchar(10)",
        "operation_reservation_known",
        "VALUE = ANY('{none,reserved,settled,released,held}'::text[])",
    ),
    "attempt_outcome": (
        "varchar(20)",
        "attempt_outcome_known",
        "VALUE = ANY('{open,receipt,rejected,not_sent,unknown,unreported}'::text[])",
    ),
    "attempt_executor": ("varchar(10)", "attempt_executor_known", "VALUE = ANY('{agent,console}'::text[])"),
}
COLUMNS = {
    "runs_run": {
        "turn_parallel": "run_turn_order",
        "in_doubt_count": "whole_count",
        "turn_settled_through": "whole_count",
        "budget_held_minor": "minor_units",
        "budget_reserved_minor": "minor_units",
        "budget_spent_minor": "minor_units",
    },
    "runs_operation": {
        "state": "operation_state",
        "reservation": "operation_reservation",
        "reserved_minor": "minor_units",
        "amount_minor": "minor_units",
    },
    "runs_attempt": {
        "outcome": "attempt_outcome",
        "executor": "attempt_executor",
        "start_within_ms": "whole_count",
        "request_within_ms": "whole_count",
    },
}

STATE_WHOLE = """
CREATE FUNCTION runs_refuse_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'new row for relation "%" violates check constraint "%"', TG_TABLE_NAME, TG_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
END $$;
CREATE TRIGGER run_state_whole
    AFTER INSERT OR UPDATE OF state, ended_at, paused_at, paused_reasons, lease_token, lease_expires_at
    ON runs_run FOR EACH ROW WHEN (NOT (
        NEW.state = ANY('{open,paused,completed,abandoned}'::text[])
        AND (NEW.state = ANY('{completed,abandoned}'::text[])) = (NEW.ended_at IS NOT NULL)
        AND (NEW.state = 'paused') = (NEW.paused_at IS NOT NULL)
        AND (NEW.state = 'paused') = (cardinality(NEW.paused_reasons) > 0)
        AND NEW.paused_reasons <@ '{outcome,budget,approval,flow_version,frozen}'::varchar(20)[]
        -- A lease is whole, and only an open run has one.
        AND (NEW.lease_token IS NOT NULL) = (NEW.lease_expires_at IS NOT NULL)
        AND (NEW.lease_token IS NULL OR NEW.state = 'open')
    )) EXECUTE FUNCTION runs_refuse_state();
"""
NO_STATE_WHOLE = "DROP TRIGGER run_state_whole ON runs_run; DROP FUNCTION runs_refuse_state();"


def to_domains() -> str:
    made = [
        f"CREATE DOMAIN {name} AS {base} CONSTRAINT {limit} CHECK ({holds});"
        for name, (base, limit, holds) in DOMAINS.items()
    ]
    return "\n".join([*made, *(_alter(table, columns) for table, columns in COLUMNS.items())])


def from_domains() -> str:
    bases = {
        table: {column: DOMAINS[domain][0] for column, domain in columns.items()}
        for table, columns in COLUMNS.items()
    }
    dropped = [f"DROP DOMAIN {name};" for name in DOMAINS]
    return "\n".join([*(_alter(table, columns) for table, columns in bases.items()), *dropped])


def _alter(table: str, columns: dict[str, str]) -> str:
    each = ", ".join(f"ALTER COLUMN {column} TYPE {kind}" for column, kind in columns.items())
    return f"ALTER TABLE {table} {each};"


class Migration(migrations.Migration):
    dependencies = [("runs", "0008_freeze_sending_after_a_restore")]

    operations = [
        migrations.RemoveConstraint(model_name="run", name="run_state_whole"),
        migrations.RemoveConstraint(model_name="run", name="run_counters_whole"),
        migrations.RemoveConstraint(model_name="operation", name="operation_state_whole"),
        migrations.RemoveConstraint(model_name="operation", name="operation_amount_whole"),
        migrations.RemoveConstraint(model_name="attempt", name="attempt_whole"),
        migrations.AlterField(model_name="attempt", name="start_within_ms", field=models.IntegerField()),
        migrations.AlterField(model_name="attempt", name="request_within_ms", field=models.IntegerField()),
        migrations.RunSQL(sql=to_domains(), reverse_sql=from_domains()),
        migrations.RunSQL(sql=STATE_WHOLE, reverse_sql=NO_STATE_WHOLE),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    django.db.models.lookups.Exact(
                        django.db.models.lookups.Exact(models.F("outcome"), "open"),
                        django.db.models.lookups.IsNull(models.F("ended_at"), True),
                    )
                ),
                name="attempt_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.CheckConstraint(
                condition=models.Q(
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
                    models.Q(("reservation", "reserved"), ("reserved_minor", 0), _connector="OR"),
                ),
                name="operation_amount_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("turn_settled__lte", models.F("turn_calls")),
                    ("turn_settled_through__lte", models.F("turn_settled")),
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
