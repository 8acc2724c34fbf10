"""The policy: from facts, a contract and the time to five answers, the allowed actions and a conclusion.

A pure function. Pages and API show its answer; every decision and every automatic settlement asks it again
under the run's lock. It never concludes absence from a lookup that can't prove it, never confirms on a
mismatch, and never lets one person repeat where the key may protect nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciliation.conclusions import Conclusion, conclude
from reconciliation.contracts import Contract
from reconciliation.facts import Facts
from reconciliation.permissions import ActionStatus, allowed_actions
from reconciliation.questions import Answer, answer_questions
from reconciliation.states import Action

# Written with every automatic settlement and every decision, so that a later reader knows the rules used.
POLICY = "recourse-default/1"


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
    return Assessment(
        answers=answers,
        actions=allowed_actions(facts, contract, now, answers),
        conclusion=conclude(facts, contract, now),
    )
