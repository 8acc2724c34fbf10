"""One agent of the demo: `python -m console.demoagents.agent JSON`. It goes through the turns of one story.

An ordinary user of the Python client; the model's part is played by the story. In the window that it is told
to stop in, it says so and waits to be killed. It may be started as often as one likes: what is on record is
skipped.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from console.demoagents.stories import ENDPOINTS, STORIES, Story
from console.staged.inside import say, wait_for_word, wait_to_be_killed
from recourse_client import (
    CallPlan,
    Client,
    Go,
    HttpSender,
    ProviderAnswer,
    Receipt,
    RecourseError,
    Run,
    RunEnded,
    RunPaused,
    Turn,
)

# Where an agent can be told to stop, in the order in which it comes by.
WINDOWS = ("decided", "go", "reply_read", "receipt_saved")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What whoever starts the agent tells it: where everything is, and where to stop."""

    story: str
    external_id: str
    url: str
    token: str
    sandbox_url: str
    spool: str
    lease_seconds: int
    wait_seconds: float
    # The version that this worker runs; empty for the story's own.
    flow_version: str = ""
    # The call before which it waits for a word, and the window in which it then stops, if any.
    stop_call: str = ""
    stop_at: str = ""


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    story = next(one for one in STORIES if one.slug == job.story)
    say("started")
    with Client(job.url, job.token, spool=job.spool) as client:
        try:
            with client.run(
                flow=story.flow,
                flow_version=job.flow_version or story.flow_version,
                external_id=job.external_id,
                input=story.input,
                goal=story.goal,
                budget=story.budget,
                lease_seconds=job.lease_seconds,
                wait_seconds=job.wait_seconds,
            ) as run:
                _work(job, story, run)
        except RunEnded:
            say("ended")
        except RunPaused as paused:
            say("paused", reasons=list(paused.reasons))
        except RecourseError as error:
            say("stopped", why=type(error).__name__, sentence=str(error))


def _work(job: Job, story: Story, run: Run) -> None:
    references: dict[str, str] = {}
    for index, decided in enumerate(story.turns, start=1):
        turn = run.turn(index, lambda decided=decided: decided)  # type: ignore[misc]
        for call in turn.calls:
            if call.effect:
                references[call.call_id] = _effect(job, run, turn, call)
            else:
                turn.read(call.call_id, lambda _args, call=call: story.found[call.call_id])  # type: ignore[misc]
    run.complete({"references": references})
    say("completed")


def _effect(job: Job, run: Run, turn: Turn, call: CallPlan) -> str:
    stop = job.stop_at if call.call_id == job.stop_call else ""
    if call.call_id == job.stop_call and call.operation is not None:
        say("decided", run=run.id, operation=call.operation.id, key=call.operation.idempotency_key)
        if stop == "decided":
            wait_to_be_killed("decided")
        # Whoever started us arranges what the provider does to this one.
        wait_for_word()
    result = turn.effect(call.call_id, lambda go: _send(job, go, stop))
    if stop == "receipt_saved":
        wait_to_be_killed("receipt_saved")
    return result.receipt.reference


def _send(job: Job, go: Go, stop: str) -> Receipt:
    if stop == "go":
        wait_to_be_killed("go")
    send = HttpSender(
        f"{job.sandbox_url}/acct/{ENDPOINTS[go.provider]}",
        receipt=lambda answer: Receipt(answer.json()["id"], answer.content),
        undecided=_key_used_for_something_else,
    )
    receipt = send(go)
    if stop == "reply_read":
        say("here", window="reply_read")
        # Killed here, or frozen and woken: then it goes on and reports what it has read.
        wait_for_word()
    return receipt


def _key_used_for_something_else(answer: ProviderAnswer) -> bool:
    error: dict[str, Any] = answer.json().get("error", {})
    return answer.status == 422 and error.get("code") == "key_reused"


if __name__ == "__main__":
    main()
