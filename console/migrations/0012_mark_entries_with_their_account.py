"""What sets an entry apart knows its account: what people did at one account is then a stretch of an index."""

from django.db import migrations, models

FILL = """
UPDATE console_historymark AS mark SET provider = entry.provider
FROM console_historyentry AS entry WHERE entry.leaf = mark.leaf AND entry.provider <> ''
"""


class Migration(migrations.Migration):
    dependencies = [("console", "0011_give_an_address_to_one_account")]

    operations = [
        migrations.AddField(
            model_name="historymark",
            name="provider",
            field=models.CharField(blank=True, max_length=100),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="historymark",
            index=models.Index(
                fields=["team_slug", "mark", "provider", "at", "leaf"], name="history_marked_by_provider"
            ),
        ),
    ]
