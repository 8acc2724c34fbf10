"""Keep lists of cases that something is done with at once, and who gave a case to whom.

Lists and outcomes are added and never changed: the application's role may add and read them (`manage.py
migrate` sees to that), and these triggers refuse the owner too. The new column of claims has a default in the
database, so nothing is rewritten.
"""

import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models


REFUSE = """
CREATE FUNCTION reconciliation_bulk_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'lists of cases are append-only: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER reconciliation_bulkitem_no_change BEFORE UPDATE OR DELETE ON reconciliation_bulkitem
    FOR EACH ROW EXECUTE FUNCTION reconciliation_bulk_refuse();
CREATE TRIGGER reconciliation_bulkitem_no_truncate BEFORE TRUNCATE ON reconciliation_bulkitem
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_bulk_refuse();
CREATE TRIGGER reconciliation_bulkoutcome_no_change BEFORE UPDATE OR DELETE ON reconciliation_bulkoutcome
    FOR EACH ROW EXECUTE FUNCTION reconciliation_bulk_refuse();
CREATE TRIGGER reconciliation_bulkoutcome_no_truncate BEFORE TRUNCATE ON reconciliation_bulkoutcome
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_bulk_refuse();
"""

ALLOW = """
DROP TRIGGER reconciliation_bulkoutcome_no_truncate ON reconciliation_bulkoutcome;
DROP TRIGGER reconciliation_bulkoutcome_no_change ON reconciliation_bulkoutcome;
DROP TRIGGER reconciliation_bulkitem_no_truncate ON reconciliation_bulkitem;
DROP TRIGGER reconciliation_bulkitem_no_change ON reconciliation_bulkitem;
DROP FUNCTION reconciliation_bulk_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0008_put_cases_off"),
    ]

    operations = [
        migrations.AddField(
            model_name="caseclaim",
            name="given_by",
            field=models.CharField(blank=True, db_default="", max_length=100),
        ),
        migrations.CreateModel(
            name="BulkJob",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("deed", models.CharField(max_length=10)),
                (
                    "state",
                    models.CharField(default="frozen", max_length=10),
                ),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("query", models.CharField(blank=True, max_length=1500)),
                ("matched_count", models.IntegerField()),
                ("items_count", models.IntegerField()),
                ("list_digest", models.CharField(max_length=64)),
                ("action", models.CharField(blank=True, max_length=10)),
                ("executor", models.CharField(blank=True, max_length=10)),
                ("then", models.CharField(blank=True, max_length=10)),
                ("assignee", models.CharField(blank=True, max_length=100)),
                ("assignee_name", models.CharField(blank=True, max_length=100)),
                ("reason_code", models.CharField(blank=True, max_length=40)),
                ("reason", models.TextField(blank=True)),
                ("next_position", models.IntegerField(default=1)),
                ("tries_count", models.IntegerField(default=0)),
                ("next_chunk", models.IntegerField(default=1)),
                ("called_at", models.DateTimeField(null=True)),
                ("frozen_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["actor", "-id"], name="bulk_of_actor"),
                    models.Index(
                        condition=models.Q(("state", "running")), fields=["called_at"], name="bulk_running"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("deed__in", ["claim", "assign", "look_up", "decide"])),
                        name="bulk_deed_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["frozen", "running", "done", "stopped"])),
                        name="bulk_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("actor", ""), _negated=True), name="bulk_is_somebodys"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("items_count__gte", 1), ("items_count__lte", 1000)),
                        name="bulk_list_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("next_position__gte", 1),
                            (
                                "next_position__lte",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("items_count"), "+", models.Value(1)
                                ),
                            ),
                        ),
                        name="bulk_position_within_list",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("called_at__isnull", True),
                                ("next_position", 1),
                                ("started_at__isnull", True),
                                ("state", "frozen"),
                            ),
                            models.Q(
                                models.Q(("state", "frozen"), _negated=True),
                                ("called_at__isnull", False),
                                ("started_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="bulk_frozen_until_started",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", False), ("state__in", ["done", "stopped"])),
                            models.Q(("ended_at__isnull", True), ("state__in", ["frozen", "running"])),
                            _connector="OR",
                        ),
                        name="bulk_ended_has_its_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "done"), _negated=True),
                            (
                                "next_position",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("items_count"), "+", models.Value(1)
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="bulk_done_after_every_case",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                models.Q(("deed", "decide"), _negated=True),
                                ("action", ""),
                                ("reason", ""),
                                ("reason_code", ""),
                            ),
                            models.Q(
                                ("action", ""),
                                ("deed", "decide"),
                                ("reason", ""),
                                ("reason_code", ""),
                                ("state", "frozen"),
                            ),
                            models.Q(
                                ("action__in", ["confirm", "retry", "abandon"]),
                                ("deed", "decide"),
                                (
                                    "reason_code__in",
                                    [
                                        "provider_record",
                                        "customer_confirmed",
                                        "done_by_hand",
                                        "not_at_provider",
                                        "no_longer_needed",
                                        "duplicate",
                                        "other",
                                    ],
                                ),
                                models.Q(("reason", ""), _negated=True),
                                models.Q(("state", "frozen"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="bulk_decision_says_what_and_why",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("action", "retry"), ("executor__in", ["agent", "console"])),
                            models.Q(models.Q(("action", "retry"), _negated=True), ("executor", "")),
                            _connector="OR",
                        ),
                        name="bulk_retry_says_who_sends",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("action", "abandon"), ("then__in", ["end", "continue"])),
                            models.Q(models.Q(("action", "abandon"), _negated=True), ("then", "")),
                            _connector="OR",
                        ),
                        name="bulk_abandon_says_what_then",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(models.Q(("deed", "assign"), _negated=True), ("assignee", "")),
                            models.Q(("assignee", ""), ("deed", "assign"), ("state", "frozen")),
                            models.Q(
                                ("deed", "assign"),
                                models.Q(("state", "frozen"), _negated=True),
                                models.Q(("assignee", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="bulk_assign_says_to_whom",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BulkItem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.IntegerField()),
                ("seen_version", models.IntegerField()),
                ("evidence_digest", models.CharField(blank=True, max_length=64)),
                ("provider", models.CharField(max_length=100)),
                ("kind", models.CharField(max_length=10)),
                ("finding", models.CharField(blank=True, max_length=20)),
                ("offers", models.CharField(blank=True, max_length=60)),
                (
                    "case",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="bulk_items",
                        to="reconciliation.case",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="items",
                        to="reconciliation.bulkjob",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="BulkOutcome",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("result", models.CharField(max_length=10)),
                ("word", models.CharField(blank=True, max_length=60)),
                ("sentence", models.CharField(blank=True, max_length=1000)),
                ("made_at", models.DateTimeField()),
                (
                    "decision",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="bulk_outcome",
                        to="reconciliation.decision",
                    ),
                ),
                (
                    "item",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="outcome",
                        to="reconciliation.bulkitem",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="bulkitem",
            constraint=models.UniqueConstraint(
                fields=("job", "position"), name="bulk_item_position_once_in_job"
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkitem",
            constraint=models.UniqueConstraint(fields=("job", "case"), name="bulk_item_case_once_in_job"),
        ),
        migrations.AddConstraint(
            model_name="bulkitem",
            constraint=models.CheckConstraint(
                condition=models.Q(("position__gte", 1), ("position__lte", 1000)),
                name="bulk_item_numbered_from_one",
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoutcome",
            constraint=models.CheckConstraint(
                condition=models.Q(("result__in", ["done", "refused", "failed"])), name="bulk_outcome_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoutcome",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("result", "done"), ("sentence", ""), ("word", "")),
                    models.Q(
                        models.Q(("result", "done"), _negated=True),
                        models.Q(("word", ""), _negated=True),
                        models.Q(("sentence", ""), _negated=True),
                        ("decision__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="bulk_outcome_says_why_not",
            ),
        ),
        migrations.RunSQL(sql=REFUSE, reverse_sql=ALLOW),
    ]
