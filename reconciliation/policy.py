"""The policy: from facts, a contract and the time to five answers, the allowed actions and a conclusion.

A pure function. Pages and API show its answer; every decision and every automatic settlement asks it again
under the run's lock. It never concludes absence from a lookup that can't prove it, never confirms on a
mismatch, and never lets one person repeat where the key may protect nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciliation.conclusions import AskPerson, Conclusion, RepeatByKey, conclude
from reconciliation.contracts import Contract, OnInFlight, Replays
from reconciliation.facts import Facts
from reconciliation.permissions import ActionStatus, allowed_actions
from reconciliation.questions import Answer, answer_questions
from reconciliation.states import Action, Need, Permission

# Written with every automatic settlement and every decision, so that a later reader knows the rules used.
POLICY = "recourse-default/3"
# What the same key gets afterwards, and meanwhile, where a repeat is no second effect by the provider's word.
_REPLAYS_SAFELY = (Replays.FIRST_ANSWER, Replays.FIRST_SUCCESS, Replays.LATEST_STATUS)
_WAITS_SAFELY = (OnInFlight.REFUSED, OnInFlight.WAITS)


@dataclass(frozen=True, kw_only=True)
class Assessment:
    answers: tuple[Answer, ...]
    actions: tuple[ActionStatus, ...]
    conclusion: Conclusion

    def action(self, action: Action) -> ActionStatus | None:
        return next((one for one in self.actions if one.action == action), None)

    def digested(self) -> dict[str, object]:
        """The part that a decision form is bound to: answers and permissions, not sentences or times."""
        return {
            "answers": [str(one.truth) for one in self.answers],
            "actions": {str(one.action): str(one.permission) for one in self.actions},
        }


def assess(facts: Facts, contract: Contract, now: datetime) -> Assessment:
    """Answer the five questions, derive what may be done, and say what follows by itself."""
    answers = answer_questions(facts, contract, now)
    actions = allowed_actions(facts, contract, now, answers)
    conclusion = conclude(facts, contract, now)
    if _repeats_alone(facts, contract, actions, conclusion):
        conclusion = RepeatByKey()
    return Assessment(answers=answers, actions=actions, conclusion=conclusion)


def _repeats_alone(
    facts: Facts, contract: Contract, actions: tuple[ActionStatus, ...], conclusion: Conclusion
) -> bool:
    """Whether the policy repeats instead of asking: once for an operation, by its flow's choice.

    Only where a person would be asked because nothing is there, or nothing can be asked; where one person
    may repeat; and where the contract says that the same key makes no second effect, now and meanwhile.
    """
    asks = isinstance(conclusion, AskPerson) and conclusion.need in (Need.NOT_FOUND, Need.NO_LOOKUP)
    retry = next((one for one in actions if one.action is Action.RETRY), None)
    return (
        asks
        and facts.may_repeat_alone
        and retry is not None
        and retry.permission is Permission.ALLOWED
        and contract.replays in _REPLAYS_SAFELY
        and contract.on_in_flight in _WAITS_SAFELY
    )
