"""Start a run, or find the one that its identity already names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.db import transaction

from runs import audit
from runs.actors import Actor
from runs.canonical import canonicalise
from runs.ids import could_be_id, new_id
from runs.journal.evidence import storable_text
from runs.models import NAME_LENGTH, Approval, Flow, FlowVersion, Run
from runs.money import Money
from runs.refusals import Invalid, Refusal

EXTERNAL_ID_LENGTH_MAX = 200
GOAL_LENGTH_MAX = 500
DIGEST_HEX_LENGTH = 64


class ExternalIdReused(Refusal):
    """The flow already has a run of this external id, with another input; nothing was changed."""

    word: ClassVar[str] = "external_id_reused"


class FlowDigestDiffers(Refusal):
    """The flow version is on record with another digest: two programs under one version."""

    word: ClassVar[str] = "flow_version_mismatch"


@dataclass(frozen=True)
class Started:
    run: Run
    replayed: bool


def start_run(
    *,
    team: str,
    flow: str,
    flow_version: str,
    external_id: str,
    input: object,
    actor: Actor,
    flow_digest: str = "",
    budget_limit: Money | None = None,
    approval_id: str = "",
    goal: str = "",
) -> Started:
    """Start a run of the flow, pinned to this version; or return the run that is already there, as pinned.

    Identity is flow + external id. The same input again returns the existing run whatever version, budget
    or approval is named now; another input raises `ExternalIdReused`. A flow and a version are recorded
    when first named. Owns its transaction.
    """
    _check_words(
        flow=flow, flow_version=flow_version, external_id=external_id, flow_digest=flow_digest, goal=goal
    )
    content = canonicalise(input)
    with transaction.atomic():
        flow_row, _ = Flow.objects.get_or_create(team_id=team, name=flow, defaults={"id": new_id("flow")})
        existing = Run.objects.filter(flow=flow_row, external_id=external_id).first()
        if existing is not None:
            return _same_or_refuse(existing, content.digest)
        version = _pin_version(flow_row, flow_version, flow_digest)
        approval = _find_approval(team, approval_id)
        run_id = new_id("run")
        fields = {
            "team_id": team,
            "flow": flow_row,
            "flow_version": version,
            "external_id": external_id,
            "goal": goal,
            "input": content.bytes,
            "input_digest": content.digest,
            "budget_currency": budget_limit.currency if budget_limit else "",
            "budget_limit_minor": budget_limit.minor if budget_limit else None,
            "approval": approval,
            "approval_until_at": _approval_ends_at(approval),
        }
        # Two starts at once: one inserts, the other waits for the first's commit and finds its row.
        run, created = Run.objects.get_or_create(
            flow=flow_row, external_id=external_id, defaults={"id": run_id, **fields}
        )
        if not created:
            return _same_or_refuse(run, content.digest)
        audit.append(
            audit.Event(
                action="run.started",
                actor=actor,
                team=team,
                run=run.id,
                after={
                    "flow": flow,
                    "flow_version": flow_version,
                    "external_id": external_id,
                    "input": content.digest,
                    **({"budget": budget_limit.as_json()} if budget_limit else {}),
                    **({"approval": approval_id} if approval_id else {}),
                },
            )
        )
        return Started(run=run, replayed=False)


def _check_words(*, flow: str, flow_version: str, external_id: str, flow_digest: str, goal: str) -> None:
    for where, value, length_max in (
        ("flow", flow, NAME_LENGTH),
        ("flow_version", flow_version, NAME_LENGTH),
        ("external_id", external_id, EXTERNAL_ID_LENGTH_MAX),
    ):
        if not value.strip() or len(value) > length_max or storable_text(value) != value:
            raise Invalid(f"{where} must be text of 1 to {length_max} characters.", where=where)
    if len(goal) > GOAL_LENGTH_MAX or storable_text(goal) != goal:
        raise Invalid(f"goal must be at most {GOAL_LENGTH_MAX} characters.", where="goal")
    hexadecimal = all(character in "0123456789abcdef" for character in flow_digest)
    if flow_digest and (len(flow_digest) != DIGEST_HEX_LENGTH or not hexadecimal):
        raise Invalid("flow_digest must be a SHA-256 in 64 lower-case hex digits.", where="flow_digest")


def _same_or_refuse(run: Run, input_digest: str) -> Started:
    if run.input_digest != input_digest:
        raise ExternalIdReused(
            f"This flow already has run {run.id} for external id {run.external_id}, with another input.",
            run=run.id,
            recorded_input_digest=run.input_digest,
            your_input_digest=input_digest,
        )
    return Started(run=run, replayed=True)


def _pin_version(flow: Flow, version: str, digest: str) -> FlowVersion:
    row, _ = FlowVersion.objects.get_or_create(flow=flow, version=version, defaults={"digest": digest})
    if digest and not row.digest:
        FlowVersion.objects.filter(pk=row.pk, digest="").update(digest=digest)
        row.refresh_from_db()
    if digest and row.digest != digest:
        raise FlowDigestDiffers(
            f"Version {version} of {flow.name} is on record with another digest.",
            recorded=row.digest,
            yours=digest,
        )
    return row


def _find_approval(team: str, approval_id: str) -> Approval | None:
    if not approval_id:
        return None
    # Locked until the run is there: whoever withdraws the approval meanwhile finds the run that refers to it.
    approvals = Approval.objects.select_for_update(no_key=True).filter(pk=approval_id, team=team)
    approval = approvals.first() if could_be_id(approval_id) else None
    if approval is None:
        raise Invalid("approval must name a record that an approver made.", where="approval")
    return approval


def _approval_ends_at(approval: Approval | None) -> datetime | None:
    if approval is None:
        return None
    return min(approval.expires_at, approval.withdrawn_at or approval.expires_at)
