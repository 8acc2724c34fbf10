"""Close the sets that only Python knew: what isn't a member can't be stored by any hand.

Each CHECK is validated under a lock that stops writes to its table for the length of one scan.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0002_append_only_audit"),
    ]

    operations = [
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(("executor__in", ["agent", "console"])), name="attempt_executor_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="flow",
            constraint=models.CheckConstraint(
                condition=models.Q(("automatic_repeat__in", ["off", "safe"])),
                name="flow_automatic_repeat_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("reserved_minor__gte", 0),
                    models.Q(("reservation", "reserved"), ("reserved_minor", 0), _connector="OR"),
                ),
                name="operation_reserved_only_while_reserved",
            ),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("in_doubt_since_at__isnull", True), ("state", "sent_unknown"), _connector="OR"
                ),
                name="operation_doubt_only_when_sent",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "paused_reasons__contained_by",
                        ["outcome", "budget", "approval", "flow_version", "frozen"],
                    )
                ),
                name="run_pause_reasons_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("turn_parallel__in", ["ordered", "parallel"])),
                name="run_turn_order_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="turn",
            constraint=models.CheckConstraint(
                condition=models.Q(("parallel__in", ["ordered", "parallel"])), name="turn_order_known"
            ),
        ),
    ]
