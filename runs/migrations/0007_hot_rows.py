"""Let an effect update its rows without writing their indexes again.

No page reads operations by team or state any more (the history reads leaves, the queue cases), and the sweeper
finds the unreported ones by their open attempts. What is left names nothing that sending or settling changes,
so PostgreSQL keeps the new version of a row beside the old one, where the page has room for it.
"""

from django.db import migrations

# Room for the versions of a row that one effect makes; what is dead by then is cleared on the way.
FILL = 70


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_settled_through")]

    operations = [
        migrations.RemoveIndex(model_name="operation", name="operation_history"),
        migrations.RemoveIndex(model_name="operation", name="operation_history_by_state"),
        migrations.RemoveIndex(model_name="operation", name="operation_unreported"),
        migrations.RunSQL(
            sql=[
                f"ALTER TABLE runs_operation SET (fillfactor = {FILL})",
                f"ALTER TABLE runs_run SET (fillfactor = {FILL})",
            ],
            reverse_sql=[
                "ALTER TABLE runs_operation RESET (fillfactor)",
                "ALTER TABLE runs_run RESET (fillfactor)",
            ],
        ),
    ]
