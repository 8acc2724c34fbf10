"""Keep requests for a second person's consent, and name that person beside the decision.

The checks and the indexes say most of it. What they can't say, two triggers do, for the application's role
and the owner alike: what is consented to and who asked never change, an answer stands, and what has ended
stays as it ended; no request and no message about one is ever deleted.
"""

import django.db.models.deletion
from django.db import migrations, models

GUARD = """
CREATE FUNCTION reconciliation_approvals_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state NOT IN ('requested', 'approved') THEN
        RAISE EXCEPTION 'approval % is %, and stays so', OLD.id, OLD.state
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF (NEW.id, NEW.kind, NEW.subject, NEW.team_id, NEW.run_id, NEW.operation_id, NEW.case_id,
        NEW.requester, NEW.requester_name, NEW.requester_role, NEW.requester_principal,
        NEW.reason_code, NEW.reason, NEW.content, NEW.content_digest, NEW.key, NEW.asked_digest,
        NEW.answer, NEW.requested_at, NEW.expires_at)
        IS DISTINCT FROM
       (OLD.id, OLD.kind, OLD.subject, OLD.team_id, OLD.run_id, OLD.operation_id, OLD.case_id,
        OLD.requester, OLD.requester_name, OLD.requester_role, OLD.requester_principal,
        OLD.reason_code, OLD.reason, OLD.content, OLD.content_digest, OLD.key, OLD.asked_digest,
        OLD.answer, OLD.requested_at, OLD.expires_at)
    THEN
        RAISE EXCEPTION 'what approval % asks for, and who asked, never change', OLD.id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.answered_at IS NOT NULL AND
       (NEW.answerer, NEW.answerer_name, NEW.answerer_role, NEW.answerer_principal, NEW.answered_at,
        NEW.comment)
        IS DISTINCT FROM
       (OLD.answerer, OLD.answerer_name, OLD.answerer_role, OLD.answerer_principal, OLD.answered_at,
        OLD.comment)
    THEN
        RAISE EXCEPTION 'approval % is answered, and its answer stands', OLD.id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.state = 'approved' AND NEW.state NOT IN ('approved', 'carried_out', 'expired', 'voided') THEN
        RAISE EXCEPTION 'approval % was approved and can''t become %', OLD.id, NEW.state
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER reconciliation_approvalrequest_guard BEFORE UPDATE ON reconciliation_approvalrequest
    FOR EACH ROW EXECUTE FUNCTION reconciliation_approvals_guard();

CREATE FUNCTION reconciliation_approvals_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'approvals are kept: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER reconciliation_approvalrequest_no_delete BEFORE DELETE ON reconciliation_approvalrequest
    FOR EACH ROW EXECUTE FUNCTION reconciliation_approvals_refuse();
CREATE TRIGGER reconciliation_approvalrequest_no_truncate BEFORE TRUNCATE ON reconciliation_approvalrequest
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_approvals_refuse();
CREATE TRIGGER reconciliation_approvalmessage_no_change
    BEFORE UPDATE OR DELETE ON reconciliation_approvalmessage
    FOR EACH ROW EXECUTE FUNCTION reconciliation_approvals_refuse();
CREATE TRIGGER reconciliation_approvalmessage_no_truncate BEFORE TRUNCATE ON reconciliation_approvalmessage
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_approvals_refuse();
"""

UNGUARD = """
DROP TRIGGER reconciliation_approvalmessage_no_truncate ON reconciliation_approvalmessage;
DROP TRIGGER reconciliation_approvalmessage_no_change ON reconciliation_approvalmessage;
DROP TRIGGER reconciliation_approvalrequest_no_truncate ON reconciliation_approvalrequest;
DROP TRIGGER reconciliation_approvalrequest_no_delete ON reconciliation_approvalrequest;
DROP TRIGGER reconciliation_approvalrequest_guard ON reconciliation_approvalrequest;
DROP FUNCTION reconciliation_approvals_refuse();
DROP FUNCTION reconciliation_approvals_guard();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0012_relate_cases_by_payload_and_time"),
        ("runs", "0009_limits_in_domains"),
    ]

    operations = [
        migrations.AddField(
            model_name="decision",
            name="approver",
            field=models.CharField(blank=True, db_default="", max_length=100),
        ),
        migrations.AddField(
            model_name="decision",
            name="approver_name",
            field=models.CharField(blank=True, db_default="", max_length=100),
        ),
        migrations.CreateModel(
            name="ApprovalRequest",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=20)),
                ("state", models.CharField(default="requested", max_length=12)),
                ("subject", models.CharField(max_length=120)),
                ("requester", models.CharField(max_length=100)),
                ("requester_name", models.CharField(blank=True, max_length=100)),
                ("requester_role", models.CharField(blank=True, max_length=40)),
                ("requester_principal", models.CharField(max_length=100)),
                ("reason_code", models.CharField(blank=True, max_length=40)),
                ("reason", models.TextField()),
                ("content", models.BinaryField()),
                ("content_digest", models.CharField(max_length=64)),
                ("key", models.CharField(max_length=100)),
                ("asked_digest", models.CharField(max_length=64)),
                ("answer", models.JSONField(default=dict)),
                ("requested_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("answerer", models.CharField(blank=True, max_length=100)),
                ("answerer_name", models.CharField(blank=True, max_length=100)),
                ("answerer_role", models.CharField(blank=True, max_length=40)),
                ("answerer_principal", models.CharField(blank=True, max_length=100)),
                ("answered_at", models.DateTimeField(null=True)),
                ("comment", models.TextField(blank=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("voided_because", models.CharField(blank=True, max_length=500)),
                (
                    "case",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="approval_requests",
                        to="reconciliation.case",
                    ),
                ),
                (
                    "operation",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="approval_requests",
                        to="runs.operation",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="approval_requests",
                        to="runs.run",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, to="runs.team"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ApprovalMessage",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=10)),
                ("text", models.TextField()),
                ("actor", models.CharField(max_length=100)),
                ("actor_name", models.CharField(blank=True, max_length=100)),
                ("key", models.CharField(max_length=100)),
                ("made_at", models.DateTimeField()),
                (
                    "approval",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="messages",
                        to="reconciliation.approvalrequest",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="decision",
            name="approval",
            field=models.OneToOneField(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="decision",
                to="reconciliation.approvalrequest",
            ),
        ),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("approval__isnull", True), ("approver", "")),
                    models.Q(
                        ("approval__isnull", False),
                        models.Q(("approver", ""), _negated=True),
                        models.Q(("approver", models.F("actor")), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="decision_approved_by_another",
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("state", "requested")),
                fields=["team", "expires_at", "id"],
                name="approval_by_deadline",
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("state__in", ["approved", "requested"])),
                fields=["expires_at"],
                name="approval_time_over",
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(fields=["case", "-requested_at", "-id"], name="approval_of_case"),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(fields=["team", "-requested_at", "-id"], name="approval_latest"),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            "override",
                            "retry",
                            "abandonment",
                            "budget_raise",
                            "approval_renewal",
                            "flow_version",
                            "held_freed",
                            "make_absent",
                        ],
                    )
                ),
                name="approval_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        ["requested", "approved", "carried_out", "refused", "withdrawn", "expired", "voided"],
                    )
                ),
                name="approval_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", True),
                        ("state", "requested"),
                        ("voided_because", ""),
                        ("answered_at__isnull", True),
                        ("answerer", ""),
                        ("answerer_principal", ""),
                    ),
                    models.Q(
                        ("ended_at__isnull", True),
                        ("state", "approved"),
                        ("voided_because", ""),
                        ("answered_at__isnull", False),
                        models.Q(("answerer", ""), _negated=True),
                        models.Q(("answerer_principal", ""), _negated=True),
                        ("comment__regex", "\\S"),
                    ),
                    models.Q(
                        ("state__in", ["carried_out", "refused"]),
                        ("voided_because", ""),
                        ("answered_at__isnull", False),
                        models.Q(("answerer", ""), _negated=True),
                        models.Q(("answerer_principal", ""), _negated=True),
                        ("comment__regex", "\\S"),
                        ("ended_at__isnull", False),
                    ),
                    models.Q(
                        ("comment__regex", "\\S"),
                        ("state", "withdrawn"),
                        ("voided_because", ""),
                        ("answered_at__isnull", True),
                        ("answerer", ""),
                        ("answerer_principal", ""),
                        ("ended_at__isnull", False),
                    ),
                    models.Q(
                        ("state__in", ["expired", "voided"]),
                        ("voided_because__regex", "\\S"),
                        models.Q(
                            models.Q(
                                ("answered_at__isnull", True), ("answerer", ""), ("answerer_principal", "")
                            ),
                            models.Q(
                                ("answered_at__isnull", False),
                                models.Q(("answerer", ""), _negated=True),
                                models.Q(("answerer_principal", ""), _negated=True),
                                ("comment__regex", "\\S"),
                            ),
                            _connector="OR",
                        ),
                        ("ended_at__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="approval_state_has_its_times",
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("requester__regex", "\\S"),
                    ("requester_principal__regex", "\\S"),
                    models.Q(("answerer", models.F("requester")), _negated=True),
                    models.Q(("answerer_principal", models.F("requester_principal")), _negated=True),
                ),
                name="approval_by_two_people",
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason__regex", "\\S")), name="approval_says_why"
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(("expires_at__gt", models.F("requested_at"))),
                name="approval_expires_after_request",
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["approved", "requested"])),
                fields=("subject",),
                name="approval_one_open_for_subject",
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalrequest",
            constraint=models.UniqueConstraint(
                fields=("requester", "key"), name="approval_key_once_per_requester"
            ),
        ),
        migrations.AddIndex(
            model_name="approvalmessage",
            index=models.Index(fields=["approval", "made_at", "id"], name="approval_message_order"),
        ),
        migrations.AddConstraint(
            model_name="approvalmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["question", "reply"])), name="approval_message_kind_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(("text__regex", "\\S")), name="approval_message_says_something"
            ),
        ),
        migrations.AddConstraint(
            model_name="approvalmessage",
            constraint=models.UniqueConstraint(
                fields=("actor", "key"), name="approval_message_key_once_per_actor"
            ),
        ),
        migrations.RunSQL(sql=GUARD, reverse_sql=UNGUARD),
    ]
