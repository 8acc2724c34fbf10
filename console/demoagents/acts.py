"""The acts: what happens to each story's agents on the way, and how its run must stand in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from console.demoagents import stories
from console.demoagents.expected import CONFIRMED, UNSENT, Effects, Expected
from console.demoagents.facts import RunFacts
from console.demoagents.stage import ActFailed, Stage
from console.demoagents.stories import Story

# What one person may do where the provider shows more or other than was intended.
_EFFECT_SEEN: Final = {"confirm": "second_person", "retry": "locked", "abandon": "allowed"}
# Where both effects carry our key and match: it did happen, so there is nothing to give up.
_EFFECTS_PROVED: Final = {"confirm": "second_person", "retry": "locked", "abandon": "locked"}
# What one person may do where a repeat might make a second effect.
_REPEAT_UNSAFE: Final = {"confirm": "second_person", "retry": "second_person", "abandon": "allowed"}
_REPEAT_SAFE: Final = {"confirm": "second_person", "retry": "allowed", "abandon": "allowed"}
SENT = "sent_unknown"


@dataclass(frozen=True, kw_only=True)
class Act:
    """One or more stories that are played together, and how each must end."""

    stories: tuple[Story, ...]
    play: Callable[[Stage], None]
    expected: Mapping[str, Expected]

    @property
    def slug(self) -> str:
        return self.stories[0].slug


def _reply_lost(stage: Stage) -> None:
    story = stories.REPLY_LOST
    stage.kill_while_held(story, "order")
    stage.say(story, "killed after the supplier committed, its reply unread")
    stage.run_to(story, "completed")
    stage.say(story, "order found by lookup, run resumed and completed")


def _ticket_then_email(stage: Stage) -> None:
    story = stories.TICKET_THEN_EMAIL
    stage.kill_at(story, "ticket", "reply_read")
    stage.say(story, "killed after the ticket was opened, before that was on record")
    stage.run_to(story, "completed")
    before = stage.facts(story).operations
    stage.run_to(story, "ended")
    after = stage.facts(story).operations
    if before != after:
        raise ActFailed(f"a third start was not silent: {before} became {after}")
    stage.say(story, "ticket found, e-mail sent; a third start sent nothing")


def _refund_unsent(stage: Stage) -> None:
    story = stories.REFUND_UNSENT
    stage.kill_at(story, "refund", "decided")
    stage.say(story, "killed when the turn was saved, before it asked to send")
    stage.run_to(story, "completed")
    stage.say(story, "refund sent by the resumed run")


def _courier(stage: Stage) -> None:
    story = stories.COURIER_PICKUP
    stage.kill_while_held(story, "pickup")
    stage.say(story, "killed with its request at the courier, who can't be asked")
    stage.until_case(story, "needs_decision")


def _other_payload(stage: Stage) -> None:
    story = stories.OTHER_PAYLOAD
    # €1,240.00 were ordered, and the supplier books €1,204.00.
    stage.kill_while_held(story, "order", fault="other_payload;amount_minor=120400")
    stage.say(story, "killed after the supplier had booked another amount")
    stage.until_case(story, "needs_decision")


def _key_window(stage: Stage) -> None:
    story = stories.KEY_WINDOW
    stage.kill_while_hanging(story, "order")
    stage.say(story, "killed with its request at the supplier, who remembers a key for 20 s")
    stage.until_case(story, "needs_decision")


def _flow_version(stage: Stage) -> None:
    old, new = stories.FLOW_VERSION, stories.FLOW_VERSION_NEWER
    stage.kill_at(old, "confirm", "decided")
    stage.say(old, "killed in the middle; nobody starts version 3 again")
    stage.run_to(new, "completed")

    def come_by() -> None:
        # A worker of the new version finds the run and is refused it: the run is pinned to the old one.
        with stage.agent(old, flow_version=new.flow_version) as agent:
            agent.wait_for("stopped", "paused")
            agent.finish()

    stage.until_paused_for(old, "flow_version", meanwhile=come_by)
    stage.say(old, "workers of version 4 came and were refused; the run waits for its version")


def _over_budget(stage: Stage) -> None:
    stage.run_to(stories.OVER_BUDGET, "paused")
    stage.say(stories.OVER_BUDGET, "paused before the order that would exceed €500.00")


def _not_found(stage: Stage) -> None:
    story = stories.NOT_FOUND
    stage.kill_at(story, "order", "go")
    stage.say(story, "killed between go and its request")
    stage.until_case(story, "needs_decision")


def _completed(stage: Stage) -> None:
    stage.run_to(stories.COMPLETED, "completed")
    stage.say(stories.COMPLETED, "completed")


def _late_report(stage: Stage) -> None:
    story = stories.LATE_REPORT
    with stage.agent(story, stop_call="pickup", stop_at="reply_read") as agent:
        agent.wait_for("decided")
        agent.go_on()
        agent.wait_for("here")
        agent.freeze()
        stage.say(story, "frozen with the courier's receipt in its hands")
        stage.until_case(story, "needs_decision")
        agent.wake()
        agent.go_on()
        agent.wait_for("stopped")
        agent.finish()
    stage.say(story, "woken after its lease; its report was kept, and settled the case")
    stage.run_to(story, "completed")


def _twice(stage: Stage) -> None:
    story = stories.TWICE
    stage.kill_while_held(story, "refund", fault="twice")
    stage.say(story, "killed after the provider had made the refund twice")
    stage.until_case(story, "needs_decision")


def _retry_granted(stage: Stage) -> None:
    story = stories.RETRY_GRANTED
    stage.kill_at(story, "order", "go")
    stage.say(story, "killed between go and its request")
    stage.until_case(story, "needs_decision")
    seen = stage.until_as(story, _RETRY_POSSIBLE)
    if seen.case is None:
        raise ActFailed("there is no case to decide")
    stage.grant_retry(seen.case, reason="The supplier's order desk was called and has no such order.")
    stage.say(story, "a person granted one more attempt to its agent")


def _key_has_closed(facts: RunFacts) -> bool:
    return facts.case is not None and "retry" not in facts.case.closes


def _may_repeat(facts: RunFacts) -> bool:
    return any(one.next == "repeat" for one in facts.operations)


_RETRY_POSSIBLE: Final = Expected(
    run="paused",
    reasons=("outcome",),
    operations={"order": Effects(state=SENT, requests=0, effects=0)},
    case="needs_decision",
    need="not_found",
    permissions=_REPEAT_SAFE,
)


def _asked(call_id: str, requests: int, effects: int, need: str, permissions: Mapping[str, str]) -> Expected:
    return Expected(
        run="paused",
        reasons=("outcome",),
        operations={call_id: Effects(state=SENT, requests=requests, effects=effects)},
        case="needs_decision",
        need=need,
        permissions=permissions,
    )


def _act(story: Story, play: Callable[[Stage], None], expected: Expected) -> Act:
    return Act(stories=(story,), play=play, expected={story.slug: expected})


# The slowest first: they mostly wait for the clock.
ACTS: Final = (
    Act(
        stories=(stories.KEY_WINDOW,),
        play=_key_window,
        expected={
            stories.KEY_WINDOW.slug: Expected(
                run="paused",
                reasons=("outcome",),
                operations={"order": Effects(state=SENT, requests=1, effects=0)},
                case="needs_decision",
                need="not_found",
                permissions=_REPEAT_UNSAFE,
                also={"the key's window is still open": _key_has_closed},
            )
        },
    ),
    Act(
        stories=(stories.RETRY_GRANTED,),
        play=_retry_granted,
        expected={
            stories.RETRY_GRANTED.slug: Expected(
                run="open",
                operations={"order": Effects(state=SENT, requests=0, effects=0)},
                case="retrying",
                decisions=1,
                also={"its agent is not told to repeat": _may_repeat},
            )
        },
    ),
    _act(stories.NOT_FOUND, _not_found, _RETRY_POSSIBLE),
    Act(
        stories=(stories.FLOW_VERSION, stories.FLOW_VERSION_NEWER),
        play=_flow_version,
        expected={
            stories.FLOW_VERSION.slug: Expected(
                run="paused", reasons=("flow_version",), operations={"confirm": UNSENT}
            ),
            stories.FLOW_VERSION_NEWER.slug: Expected(run="completed", operations={"confirm": CONFIRMED}),
        },
    ),
    _act(stories.COURIER_PICKUP, _courier, _asked("pickup", 1, 1, "no_lookup", _REPEAT_UNSAFE)),
    _act(
        stories.LATE_REPORT,
        _late_report,
        Expected(
            run="completed", operations={"pickup": CONFIRMED, "tell-recipient": CONFIRMED}, case="confirmed"
        ),
    ),
    _act(
        stories.REPLY_LOST,
        _reply_lost,
        Expected(
            run="completed", operations={"order": CONFIRMED, "tell-warehouse": CONFIRMED}, case="confirmed"
        ),
    ),
    _act(
        stories.TICKET_THEN_EMAIL,
        _ticket_then_email,
        Expected(
            run="completed", operations={"ticket": CONFIRMED, "tell-customer": CONFIRMED}, case="confirmed"
        ),
    ),
    _act(stories.OTHER_PAYLOAD, _other_payload, _asked("order", 1, 1, "mismatch", _EFFECT_SEEN)),
    _act(stories.TWICE, _twice, _asked("refund", 1, 2, "several", _EFFECTS_PROVED)),
    _act(
        stories.REFUND_UNSENT,
        _refund_unsent,
        Expected(run="completed", operations={"refund": CONFIRMED}),
    ),
    _act(
        stories.OVER_BUDGET,
        _over_budget,
        Expected(
            run="paused", reasons=("budget",), operations={"consumables": CONFIRMED, "wrenches": UNSENT}
        ),
    ),
    _act(
        stories.COMPLETED,
        _completed,
        Expected(
            run="completed", operations={"refund": CONFIRMED, "note": CONFIRMED, "tell-customer": CONFIRMED}
        ),
    ),
)
