"""Keep how a claim of a case came about: one that was simply the next is given back by leaving its page.

The column has a default in the database, so nothing is rewritten, and claims that last are chosen ones.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("reconciliation", "0009_work_on_many_cases_at_once")]

    operations = [
        migrations.AddField(
            model_name="caseclaim",
            name="taken_as",
            field=models.CharField(db_default="chosen", max_length=10),
        ),
        migrations.AddConstraint(
            model_name="caseclaim",
            constraint=models.CheckConstraint(
                condition=models.Q(("taken_as__in", ["chosen", "next"])), name="case_claim_taken_as_known"
            ),
        ),
    ]
