"""Keep each request to make an effect absent: on disk before it leaves, and what became of it."""

import django.db.models.deletion
from django.db import migrations, models


GUARD = """
CREATE FUNCTION reconciliation_absences_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> 'sent' AND
       (NEW.state, NEW.outcome, NEW.ended_at, NEW.evidence_id)
        IS DISTINCT FROM (OLD.state, OLD.outcome, OLD.ended_at, OLD.evidence_id)
    THEN
        RAISE EXCEPTION 'request % to make an effect absent is %, and stays so', OLD.id, OLD.state
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.proved AND NOT NEW.proved
       OR (NEW.id, NEW.operation_id, NEW.case_id, NEW.approval_id, NEW.number, NEW.attempts_before,
           NEW.sent_at, NEW.quiet_after_at)
           IS DISTINCT FROM
          (OLD.id, OLD.operation_id, OLD.case_id, OLD.approval_id, OLD.number, OLD.attempts_before,
           OLD.sent_at, OLD.quiet_after_at)
    THEN
        RAISE EXCEPTION 'what request % to make an effect absent is about never changes', OLD.id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER reconciliation_absencerequest_guard BEFORE UPDATE ON reconciliation_absencerequest
    FOR EACH ROW EXECUTE FUNCTION reconciliation_absences_guard();

CREATE FUNCTION reconciliation_absences_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'requests to make an effect absent are kept: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER reconciliation_absencerequest_no_delete BEFORE DELETE ON reconciliation_absencerequest
    FOR EACH ROW EXECUTE FUNCTION reconciliation_absences_refuse();
CREATE TRIGGER reconciliation_absencerequest_no_truncate BEFORE TRUNCATE ON reconciliation_absencerequest
    FOR EACH STATEMENT EXECUTE FUNCTION reconciliation_absences_refuse();
"""

UNGUARD = """
DROP TRIGGER reconciliation_absencerequest_no_truncate ON reconciliation_absencerequest;
DROP TRIGGER reconciliation_absencerequest_no_delete ON reconciliation_absencerequest;
DROP TRIGGER reconciliation_absencerequest_guard ON reconciliation_absencerequest;
DROP FUNCTION reconciliation_absences_refuse();
DROP FUNCTION reconciliation_absences_guard();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0013_keep_requests_for_approval"),
        ("runs", "0012_let_evidence_say_absent"),
    ]

    operations = [
        migrations.CreateModel(
            name="AbsenceRequest",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("number", models.IntegerField()),
                ("state", models.CharField(default="sent", max_length=10)),
                ("outcome", models.CharField(blank=True, max_length=10)),
                ("proved", models.BooleanField(default=False)),
                ("attempts_before", models.IntegerField()),
                ("sent_at", models.DateTimeField()),
                ("quiet_after_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="decision",
            name="decision_action_known",
        ),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("action__in", ["confirm", "retry", "abandon", "make_absent", "accept", "compensate"])
                ),
                name="decision_action_known",
            ),
        ),
        migrations.AddField(
            model_name="absencerequest",
            name="approval",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="absence_request",
                to="reconciliation.approvalrequest",
            ),
        ),
        migrations.AddField(
            model_name="absencerequest",
            name="case",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="absence_requests",
                to="reconciliation.case",
            ),
        ),
        migrations.AddField(
            model_name="absencerequest",
            name="evidence",
            field=models.ForeignKey(
                db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="runs.evidence"
            ),
        ),
        migrations.AddField(
            model_name="absencerequest",
            name="operation",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="absence_requests",
                to="runs.operation",
            ),
        ),
        migrations.AddIndex(
            model_name="absencerequest",
            index=models.Index(
                condition=models.Q(("state", "sent")),
                fields=["quiet_after_at"],
                name="absence_without_answer",
            ),
        ),
        migrations.AddConstraint(
            model_name="absencerequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", True),
                        ("evidence__isnull", True),
                        ("outcome", ""),
                        ("state", "sent"),
                    ),
                    models.Q(
                        ("ended_at__isnull", False),
                        ("evidence__isnull", False),
                        ("state", "answered"),
                        ("outcome__in", ["absent", "refused", "not_sent", "unknown"]),
                    ),
                    models.Q(
                        ("ended_at__isnull", False),
                        ("evidence__isnull", False),
                        ("outcome", ""),
                        ("state", "unanswered"),
                    ),
                    _connector="OR",
                ),
                name="absence_state_has_its_end",
            ),
        ),
        migrations.AddConstraint(
            model_name="absencerequest",
            constraint=models.CheckConstraint(
                condition=models.Q(("proved", False), ("outcome", "absent"), _connector="OR"),
                name="absence_proof",
            ),
        ),
        migrations.AddConstraint(
            model_name="absencerequest",
            constraint=models.CheckConstraint(
                condition=models.Q(("number__gte", 1), ("quiet_after_at__gt", models.F("sent_at"))),
                name="absence_numbered_and_bounded",
            ),
        ),
        migrations.AddConstraint(
            model_name="absencerequest",
            constraint=models.UniqueConstraint(fields=("operation", "number"), name="absence_number_once"),
        ),
        migrations.AddConstraint(
            model_name="absencerequest",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "sent")), fields=("operation",), name="absence_one_under_way"
            ),
        ),
        migrations.RunSQL(sql=GUARD, reverse_sql=UNGUARD),
    ]
