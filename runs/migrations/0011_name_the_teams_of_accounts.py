"""Keep which teams alone may use a provider account; none named leaves it open to every team, as it was."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("runs", "0010_wait_for_a_kept_version")]

    operations = [
        migrations.CreateModel(
            name="AccountTeam",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("made_by", models.CharField(max_length=100)),
                ("made_at", models.DateTimeField(db_default=Now())),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="named",
                        to="runs.provideraccount",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="accounts_named",
                        to="runs.team",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("account", "team"), name="account_team_once"),
                ],
            },
        ),
    ]
