"""Every account gets a human being of its own; where one has two, an administrator says so afterwards."""

from django.db import migrations, models
from django.db.models.functions import Cast, Concat


class Migration(migrations.Migration):
    dependencies = [("console", "0004_search_by_parts_of_names")]

    operations = [
        migrations.AddField(
            model_name="person",
            name="principal",
            field=models.CharField(
                db_default=Concat(
                    models.Value("hum_"),
                    Cast(
                        models.Func(function="gen_random_uuid", output_field=models.UUIDField()),
                        models.CharField(),
                    ),
                ),
                max_length=100,
            ),
        ),
        migrations.AddConstraint(
            model_name="person",
            constraint=models.CheckConstraint(
                condition=models.Q(("principal__regex", r"\S")), name="person_has_principal"
            ),
        ),
    ]
