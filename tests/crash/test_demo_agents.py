"""The demo's agents, for real: each act played once, its facts read at the provider and in the journal."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from console.demoagents import stories, table
from console.demoagents.acts import ACTS
from console.demoagents.cast import Ending
from console.demoagents.expected import CONFIRMED, UNSENT, Expected, differences, past_mending
from console.demoagents.facts import CaseFacts, OperationFacts, RunFacts
from console.demoagents.stories import STORIES, sandbox_account
from console.embedded.processes import alive, command_line
from console.models import ApiToken, Person, Role, Scope, create_token
from console.sandbox.control import SandboxControl
from reconciliation.accounts import sync_accounts
from reconciliation.approval_models import ApprovalRequest
from reconciliation.models import Case, Decision
from runs.models import Evidence, Grant, Operation, Receipt, Run
from tests import factories
from tests.processes import Process, Server, Spawn, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

ENDS_WITHIN_SECONDS = 200.0
SENT, CONFIRMED_STATE = "sent_unknown", "confirmed"
# Run, its pause reasons, its newest case; then each effect with its state, requests and effects.
STANDS = {
    "PO-2026-1187": ("completed", [], "confirmed", {"order": (1, 1), "tell-warehouse": (1, 1)}),
    "MSG-88213": ("completed", [], "confirmed", {"ticket": (1, 1), "tell-customer": (1, 1)}),
    "RET-5521": ("completed", [], "", {"refund": (1, 1)}),
    "SHP-3307": ("paused", ["outcome"], "no_lookup", {"pickup": (1, 1)}),
    "PO-2026-1191": ("paused", ["outcome"], "mismatch", {"order": (1, 1)}),
    "SP-0418": ("paused", ["outcome"], "not_found", {"order": (1, 0)}),
    "CT-2207": ("paused", ["flow_version"], "", {"confirm": (0, 0)}),
    "CT-2231": ("completed", [], "", {"confirm": (1, 1)}),
    "WS-2026-49": ("paused", ["budget"], "", {"consumables": (1, 1), "wrenches": (0, 0)}),
    "PO-2026-1194": ("paused", ["outcome"], "not_found", {"order": (0, 0)}),
    "RET-5518": ("completed", [], "", {"refund": (1, 1), "note": (1, 1), "tell-customer": (1, 1)}),
    "SHP-3311": ("completed", [], "confirmed", {"pickup": (1, 1), "tell-recipient": (1, 1)}),
    "RET-5534": ("paused", ["outcome"], "several", {"refund": (1, 2)}),
    "PO-2026-1198": ("open", [], "retrying", {"order": (0, 0)}),
}


@pytest.fixture
def running(request: pytest.FixtureRequest, app_env: dict[str, str]) -> Server:
    """The web server and the sandbox; `app_env` is then what the demo's agents are given."""
    app_env |= {"RECOURSE_VERSION_SILENT_SECONDS": "8", "RECOURSE_LOOKUP_BASE_SECONDS": "0.3"}
    sandbox: Server = request.getfixturevalue("sandbox")
    sync_accounts()
    team = factories.make_team("demo")
    person = Person.objects.create(username="operator", roles=[Role.OPERATOR])
    person.teams.add(team)
    made = create_token(
        team=team,
        name="agents",
        scopes=[Scope.JOURNAL, Scope.READ],
        expires_at=timezone.now() + timedelta(hours=1),
    )
    web: Server = request.getfixturevalue("web_server")
    app_env |= {"RECOURSE_URL": web.url, "RECOURSE_TOKEN": made.secret}
    return sandbox


def counted(sandbox: Server) -> dict[str, dict[str, tuple[int, int]]]:
    """Requests and effects at the provider, by run and call."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    with SandboxControl(sandbox.url) as control:
        for operation in Operation.objects.select_related("run", "call"):
            counts = control.stats(sandbox_account(operation.provider_id), key=operation.key)
            calls = found.setdefault(operation.run.external_id, {})
            calls[operation.call.call_id] = (counts.requests, counts.effects)
    return found


def newest_case(external_id: str) -> str:
    """What a person is asked, or how the case ended or stands; "" without one."""
    case = Case.objects.filter(run__external_id=external_id).order_by("-opened_at").first()
    return "" if case is None else case.need or case.resolution or case.state


def agents_of(folder: Path) -> list[str]:
    """Living agent processes whose job names the folder."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    lines = [command_line(pid) for pid in pids if alive(pid)]
    return [line for line in lines if "console.demoagents.agent" in line and str(folder) in line]


def test_every_act_ends_as_it_must_and_a_second_start_changes_nothing(
    running: Server,
    celery_worker: Process,
    celery_beat: Process,
    spawn: Spawn,
    app_env: dict[str, str],
    tmp_path: Path,
) -> None:
    agents = spawn.manage("demo_agents", env=app_env)
    assert agents.wait(timeout_seconds=ENDS_WITHIN_SECONDS) == 0, agents.output()

    # A loaded machine may have kept an agent from its window; the run that stands for the act is then the
    # numbered one, and its first one is no part of the table.
    shown = re.findall(r"^ {4}((?:[A-Z]+-)[0-9W-]+): (.*)$", agents.output(), re.MULTILINE)
    assert [base_of(external_id) for external_id, _ in shown] == [story.external_id for story in STORIES]
    at_provider = counted(running)
    for external_id, said in shown:
        state, reasons, need, calls = STANDS[base_of(external_id)]
        run = Run.objects.get(external_id=external_id)
        assert (run.state, run.paused_reasons) == (state, reasons), external_id
        assert newest_case(external_id) == need, external_id
        assert at_provider[external_id] == calls, external_id
        assert said.startswith("did it happen?") == (reasons == ["outcome"]), said
        for call_id, (requests, effects) in calls.items():
            settled = CONFIRMED_STATE if (requests, effects) == (1, 1) and reasons != ["outcome"] else ""
            row = rf"{call_id} +{requests} +{effects}  {settled or '(?:sent_unknown|ready)'}\b"
            assert re.search(row, agents.output()), row

    facts_of_the_journal({base_of(external_id): external_id for external_id, _ in shown})
    assert not ApiToken.objects.usable().filter(scopes__contains=[Scope.DECIDE]).exists()
    assert agents_of(tmp_path) == []

    # The approver's login opens on real work, and a second start asks for nothing more.
    asked = ApprovalRequest.objects.get()
    assert (asked.state, asked.kind, asked.requester_name) == ("requested", "budget_raise", "operator")
    assert base_of(asked.run.external_id) == "WS-2026-49"

    runs = Run.objects.count()
    again = spawn.manage("demo_agents", env=app_env)
    assert again.wait() == 0, again.output()
    assert "These runs are of an earlier start" in again.output()
    assert "Running" not in again.output()
    assert table_of(again) == table_of(agents)
    assert (Run.objects.count(), counted(running)) == (runs, at_provider)
    assert ApprovalRequest.objects.count() == 1


def base_of(external_id: str) -> str:
    """The story's own external id: `RET-5534` of `RET-5534-2`."""
    return next(one for one in STANDS if external_id == one or re.fullmatch(rf"{one}-[2-9]", external_id))


def table_of(process: Process) -> list[str]:
    lines = process.output().splitlines()
    return [line for line in lines[lines.index("") :] if "earlier start" not in line and line]


def facts_of_the_journal(ids: dict[str, str]) -> None:
    """What the table can't show: how the cases were settled, and by whom."""
    # Evidence settled what it could; a person decided once.
    decision = Decision.objects.get()
    assert (decision.case.run.external_id, decision.action) == (ids["PO-2026-1198"], "retry")
    assert (decision.executor, decision.actor_name) == ("agent", "operator")
    assert Grant.objects.get().state == "open"
    # The lost reply was found; the frozen worker's report was late, and names its effect by the reply alone.
    found = Receipt.objects.get(
        operation__run__external_id=ids["PO-2026-1187"], operation__tool="place_order"
    )
    assert (found.matched_by, found.evidence and found.evidence.kind) == ("key", "lookup")
    late = Receipt.objects.get(operation__run__external_id=ids["SHP-3311"], operation__tool="book_pickup")
    assert (late.matched_by, late.evidence and late.evidence.kind) == ("reply_only", "late_report")
    # The lookup showed the amount that the supplier booked instead.
    other = Evidence.objects.filter(
        operation__run__external_id=ids["PO-2026-1191"], finding="mismatch"
    ).first()
    assert other is not None
    assert b"120400" in bytes(other.body or b"")


def test_a_killed_start_leaves_no_agent_running(
    running: Server, spawn: Spawn, app_env: dict[str, str], tmp_path: Path
) -> None:
    agents = spawn.manage("demo_agents", "--only", "courier", "--only", "late-report", env=app_env)
    agents.wait_for("frozen with the courier's receipt")
    assert agents_of(tmp_path)
    agents.send_signal(signal.SIGKILL)
    assert any(not agents_of(tmp_path) for _ in until(10)), agents_of(tmp_path)


def test_an_effect_too_many_is_said_at_once_and_ends_in_an_error(
    running: Server, spawn: Spawn, app_env: dict[str, str]
) -> None:
    with SandboxControl(running.url) as control:
        control.fault("twice", account="payments")
    agents = spawn.manage("demo_agents", "--only", "completed", env=app_env)
    assert agents.wait(timeout_seconds=80) == 1
    wrong = "refund: the provider counts 1 requests and 2 effects, not 1 and 1"
    assert f"NOT AS IT SHOULD BE: {wrong}" in agents.output()
    assert "CommandError: Not everything is as it should be" in agents.output()


def test_an_unknown_token_is_refused_before_any_agent_starts(
    sandbox: Server, spawn: Spawn, app_env: dict[str, str]
) -> None:
    given = {**app_env, "RECOURSE_URL": "http://127.0.0.1:9", "RECOURSE_TOKEN": "rec_unknown"}
    agents = spawn.manage("demo_agents", env=given)
    assert agents.wait() == 1
    assert "CommandError: RECOURSE_TOKEN is unknown here, revoked or expired." in agents.output()


def test_what_is_missing_in_the_environment_is_named(spawn: Spawn, app_env: dict[str, str]) -> None:
    agents = spawn.manage("demo_agents", env=app_env)
    assert agents.wait() == 1
    assert "CommandError: Set RECOURSE_URL, RECOURSE_TOKEN, SANDBOX_URL." in agents.output()


# --- Without processes ---------------------------------------------------------------------------------

ORDER = OperationFacts(
    call_id="order", provider=stories.SUPPLIER, key="k", state="confirmed", next="skip", requests=1, effects=1
)
CASE = CaseFacts(
    id="case_1",
    state="needs_decision",
    need="not_found",
    resolution="",
    version=3,
    evidence_digest="d",
    finding_summary="",
    decisions=0,
    permissions={"confirm": "second_person", "retry": "allowed", "abandon": "locked"},
    sentences={},
    closes={},
)
RUN = RunFacts(
    id="run_1",
    external_id="PO-1",
    flow="restock-agent",
    flow_version="6",
    state="completed",
    reasons=(),
    operations=(ORDER,),
    case=None,
)
EXPECTED = Expected(run="completed", operations={"order": CONFIRMED})


def test_every_story_is_played_by_one_act_that_knows_its_end() -> None:
    played = [story.slug for act in ACTS for story in act.stories]
    assert sorted(played) == sorted(story.slug for story in STORIES)
    assert all(set(act.expected) == {story.slug for story in act.stories} for act in ACTS)
    assert {story.external_id for story in STORIES} == set(STANDS)


@pytest.mark.parametrize(
    ("facts", "expected", "said"),
    [
        (RUN, EXPECTED, []),
        (
            replace(RUN, state="paused", reasons=("budget",)),
            EXPECTED,
            ["the run is paused (budget), not completed"],
        ),
        (
            RUN,
            replace(EXPECTED, operations={"order": UNSENT}),
            ["order is confirmed, not ready", "order: the provider"],
        ),
        (RUN, replace(EXPECTED, operations={}), ["nobody expected order"]),
        (replace(RUN, operations=()), EXPECTED, ["order is not on record"]),
        (replace(RUN, case=CASE), EXPECTED, ["case case_1 was opened, and nothing was in doubt"]),
        (RUN, replace(EXPECTED, case="confirmed"), ["no case is open, and one should be confirmed"]),
        (
            replace(RUN, case=replace(CASE, decisions=1)),
            replace(EXPECTED, case="looking_up", need="mismatch", permissions={"retry": "locked"}),
            [
                "its case is needs_decision, not looking_up",
                "a person is asked because of not_found, not mismatch",
                "retry is allowed, not locked",
                "people decided 1 times, not 0",
            ],
        ),
        (RUN, replace(EXPECTED, also={"it never holds": lambda _facts: False}), ["it never holds"]),
    ],
)
def test_each_difference_is_named(facts: RunFacts, expected: Expected, said: list[str]) -> None:
    found = differences(facts, expected)
    assert len(found) == len(said)
    assert all(one.startswith(start) for one, start in zip(found, said, strict=True)), found


def test_only_what_was_counted_too_often_is_past_mending() -> None:
    assert not past_mending(replace(RUN, operations=(replace(ORDER, effects=0),)), EXPECTED)
    assert past_mending(replace(RUN, operations=(replace(ORDER, effects=2),)), EXPECTED)
    assert past_mending(replace(RUN, operations=(replace(ORDER, requests=2),)), EXPECTED)


def test_the_table_adds_up_what_was_counted_and_says_what_is_missing() -> None:
    endings = [
        Ending(story=stories.REPLY_LOST, facts=replace(RUN, case=CASE), played=True, wrong=("it is wrong",)),
        Ending(story=stories.TWICE, facts=replace(RUN, operations=(replace(ORDER, effects=2),)), played=True),
        Ending(story=stories.COMPLETED, facts=None, played=False),
    ]
    lines = list(table.lines(endings))
    assert "    NOT AS IT SHOULD BE: it is wrong" in lines
    assert any(line.startswith(" 3  Refund with everything") and "not played" in line for line in lines)
    assert lines[-1].split() == ["Counted", "at", "the", "providers", "2", "3", "2", "runs"]
    asked = next(line for line in lines if "did it happen?" in line)
    assert asked.endswith("confirm: two people, retry: one person, abandon: locked.")
