"""Keep until when a worker of a run's version is awaited, where a person said that one will come.

A nullable column without a default: the table isn't written anew.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0009_limits_in_domains")]

    operations = [
        migrations.AddField(
            model_name="run", name="version_awaited_until_at", field=models.DateTimeField(null=True)
        ),
    ]
