"""Freeze sending after a restore, and keep which database this is, how accounts come back, and orphans.

A column with a constant default on the few provider accounts, and new tables.
"""

import django.db.models.deletion
import django.db.models.lookups
import runs.states
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0007_hot_rows"),
    ]

    operations = [
        migrations.CreateModel(
            name="AccountReturn",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("marked_count", models.IntegerField(default=0)),
                ("marked_at", models.DateTimeField(null=True)),
                ("listing", models.CharField(default=runs.states.ListingState["DUE"], max_length=20)),
                ("listing_note", models.CharField(blank=True, max_length=500)),
                ("listed_at", models.DateTimeField(null=True)),
                ("listing_failures_count", models.IntegerField(default=0)),
                ("listing_not_before_at", models.DateTimeField()),
                ("known_count", models.IntegerField(default=0)),
                ("orphans_count", models.IntegerField(default=0)),
                ("others_count", models.IntegerField(default=0)),
                ("opened_at", models.DateTimeField(null=True)),
                ("opened_by", models.CharField(blank=True, max_length=100)),
            ],
        ),
        migrations.CreateModel(
            name="Binding",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        serialize=False,
                        to="runs.provideraccount",
                    ),
                ),
                ("environment", models.CharField(max_length=40)),
                ("bound_at", models.DateTimeField()),
                ("bound_by", models.CharField(max_length=100)),
            ],
        ),
        migrations.CreateModel(
            name="Environment",
            fields=[
                ("one", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("id_text", models.CharField(max_length=40, unique=True)),
                ("system_identifier", models.BigIntegerField(null=True)),
                ("timeline", models.BigIntegerField(null=True)),
                ("database_oid", models.BigIntegerField(null=True)),
                ("made_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Freeze",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("found_at", models.DateTimeField()),
                ("because", models.CharField(max_length=500)),
                ("answer", models.CharField(default=runs.states.FreezeAnswer["AWAITED"], max_length=20)),
                ("answered_at", models.DateTimeField(null=True)),
                ("answered_by", models.CharField(blank=True, max_length=100)),
                ("answered_by_name", models.CharField(blank=True, max_length=100)),
                ("reason", models.TextField(blank=True)),
                ("backup_taken_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Orphan",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("reference", models.CharField(max_length=300)),
                ("key", models.CharField(blank=True, max_length=45)),
                ("our_reference", models.CharField(blank=True, max_length=255)),
                ("state_there", models.CharField(max_length=20)),
                ("amount_currency", models.CharField(blank=True, max_length=3)),
                ("amount_minor", models.BigIntegerField(null=True)),
                ("body", models.JSONField(default=dict)),
                ("body_digest", models.CharField(max_length=64)),
                ("found_at", models.DateTimeField()),
                ("state", models.CharField(default=runs.states.OrphanState["OPEN"], max_length=20)),
                ("linked_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name="provideraccount",
            name="sending",
            field=models.CharField(
                db_default=runs.states.Sending["OPEN"], default=runs.states.Sending["OPEN"], max_length=10
            ),
        ),
        migrations.AddConstraint(
            model_name="provideraccount",
            constraint=models.CheckConstraint(
                condition=models.Q(("sending__in", ["open", "frozen"])), name="account_sending_known"
            ),
        ),
        migrations.AddField(
            model_name="accountreturn",
            name="account",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, to="runs.provideraccount"
            ),
        ),
        migrations.AddConstraint(
            model_name="environment",
            constraint=models.CheckConstraint(condition=models.Q(("one", 1)), name="environment_is_one"),
        ),
        migrations.AddConstraint(
            model_name="freeze",
            constraint=models.CheckConstraint(
                condition=models.Q(("answer__in", ["awaited", "copy", "own_environment", "production"])),
                name="freeze_answer_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="freeze",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("answer", "awaited"), ("answered_at__isnull", True)),
                    models.Q(models.Q(("answer", "awaited"), _negated=True), ("answered_at__isnull", False)),
                    _connector="OR",
                ),
                name="freeze_answer_has_its_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="freeze",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("answer", "production"), _negated=True),
                    ("backup_taken_at__isnull", False),
                    _connector="OR",
                ),
                name="freeze_production_says_since_when",
            ),
        ),
        migrations.AddConstraint(
            model_name="freeze",
            constraint=models.UniqueConstraint(
                django.db.models.lookups.IsNull(models.F("ended_at"), True),
                condition=models.Q(("ended_at__isnull", True)),
                name="freeze_one_open",
            ),
        ),
        migrations.AddField(
            model_name="accountreturn",
            name="freeze",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="returns", to="runs.freeze"
            ),
        ),
        migrations.AddField(
            model_name="orphan",
            name="account",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, to="runs.provideraccount"
            ),
        ),
        migrations.AddField(
            model_name="orphan",
            name="freeze",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="orphans", to="runs.freeze"
            ),
        ),
        migrations.AddField(
            model_name="orphan",
            name="operation",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="orphans",
                to="runs.operation",
            ),
        ),
        migrations.AddConstraint(
            model_name="accountreturn",
            constraint=models.UniqueConstraint(fields=("freeze", "account"), name="return_once_in_freeze"),
        ),
        migrations.AddConstraint(
            model_name="accountreturn",
            constraint=models.CheckConstraint(
                condition=models.Q(("listing__in", ["due", "done", "not_offered"])),
                name="return_listing_known",
            ),
        ),
        migrations.AddIndex(
            model_name="orphan",
            index=models.Index(condition=models.Q(("state", "open")), fields=["id"], name="orphan_open"),
        ),
        migrations.AddConstraint(
            model_name="orphan",
            constraint=models.UniqueConstraint(
                fields=("account", "reference"), name="orphan_once_at_account"
            ),
        ),
        migrations.AddConstraint(
            model_name="orphan",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["open", "linked"])), name="orphan_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="orphan",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("linked_at__isnull", True), ("operation__isnull", True), ("state", "open")),
                    models.Q(("linked_at__isnull", False), ("operation__isnull", False), ("state", "linked")),
                    _connector="OR",
                ),
                name="orphan_linked_whole",
            ),
        ),
    ]
