"""An index for the history of what people did. Built concurrently: the log may be long, and is written to."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("runs", "0003_close_the_sets")]

    operations = [
        AddIndexConcurrently(
            model_name="auditleaf",
            index=models.Index(
                fields=["team_slug", "-id"],
                name="leaf_by_people",
                condition=models.Q(("actor_kind", "person")),
            ),
        ),
    ]
