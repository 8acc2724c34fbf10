"""What each kind of exception means to an auditor, and why there may be none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from console.history_filing import QUICK_SECONDS
from console.history_models import Mark


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One way of looking for what an auditor looks for. `bad`: one of them is one too many."""

    label: str
    means: str
    none: str
    bad: bool = False


PRESETS: Final[dict[Mark, Preset]] = {
    Mark.PEOPLE: Preset(
        label="What people did",
        means="Every act of a person: decisions, claims, notes, what was shown to them.",
        none="Nobody has acted on anything of your teams yet.",
    ),
    Mark.OWN_APPROVAL: Preset(
        label="Tried to approve own request",
        means="Somebody tried to approve what they had asked for themselves, under this or another account."
        " Each was refused, and nothing was carried out by it.",
        none="Nobody has tried. A request that is approved was approved by another human being: the database"
        " refuses anything else.",
        bad=True,
    ),
    Mark.LATE_RETRY: Preset(
        label="Retried after key expiry",
        means="The same key was allowed to be sent, or was sent, after the provider stopped recognising it."
        " From then on a repeat can be a second effect.",
        none="No retry was decided or sent after its key’s window had ended.",
        bad=True,
    ),
    Mark.OVERRIDE: Preset(
        label="Confirmed without a matching receipt",
        means="The operation was confirmed although no receipt names it by its key or reference: a person"
        " matched it, or two people overrode the question.",
        none="Every confirmation stands on a receipt that carries our key or reference, or on the direct"
        " reply to the request.",
    ),
    Mark.CONFLICT: Preset(
        label="Conflicts",
        means="The evidence contradicts itself: more effects than intended, an effect after it was given up,"
        " or a request that nobody was allowed to send; and how each was closed.",
        none="No operation has more effects than intended, as far as the providers have told.",
        bad=True,
    ),
    Mark.TAKEOVER: Preset(
        label="Takeovers",
        means="Somebody took a case from a colleague who was working on it, or a lease from a worker, each"
        " with the reason they gave.",
        none="No claim and no lease was taken away from its holder.",
    ),
    Mark.REVEALED: Preset(
        label="Hidden parts shown",
        means="Somebody was shown what is hidden in a payload or in evidence, with the reason they gave.",
        none="Nobody was shown anything that pages hide.",
    ),
    Mark.FENCED: Preset(
        label="Writes refused by fencing",
        means="A worker wrote under a lease that was over, and was refused: nothing of it was carried out."
        " One entry for each lease and kind of write.",
        none="No worker has written after its lease was over. Refusals without a lease of ours aren’t kept.",
    ),
    Mark.LATE_EVIDENCE: Preset(
        label="Late evidence",
        means="A report came when its sender’s lease was over or the attempt had ended, or for an attempt"
        " that was never given. It was kept, and moved nothing by itself.",
        none="Every report came in its time, from whoever was allowed to send.",
    ),
    Mark.QUICK: Preset(
        label=f"Decided within {QUICK_SECONDS} seconds",
        means=f"A person decided less than {QUICK_SECONDS} seconds after the case came to them: hardly time"
        " to read its evidence. A decision over many cases at once looks like this too.",
        none=f"Every decision was made more than {QUICK_SECONDS} seconds after its case came to a person.",
    ),
    Mark.NO_LOOKUP: Preset(
        label="Decided without a lookup",
        means="A person decided before any lookup had told something, as where a provider offers none.",
        none="Before every decision a lookup had told something.",
    ),
}
# The first view is no exception.
EXCEPTIONS: Final = tuple(mark for mark in Mark if mark is not Mark.PEOPLE)
