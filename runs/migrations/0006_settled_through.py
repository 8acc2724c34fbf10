"""Count how far a turn is settled without a gap, so that a send needs no look at the calls before it.

A run that is under way starts with none counted, and its next send counts anew.
"""

import runs.constraints
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0005_compact_checks"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="run",
            name="run_counters_whole",
        ),
        migrations.AddField(
            model_name="run",
            name="turn_settled_through",
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    runs.constraints.OneOf("turn_parallel", ["ordered", "parallel"]),
                    ("in_doubt_count__gte", 0),
                    ("turn_settled__lte", models.F("turn_calls")),
                    ("turn_settled_through__gte", 0),
                    ("turn_settled_through__lte", models.F("turn_settled")),
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
