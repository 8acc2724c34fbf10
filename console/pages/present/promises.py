"""A contract in plain words: every field, its value, and what Recourse makes of it.

Pages and `docs/providers/` say the same sentences, because both are made here. Pure text, no markup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from console.pages.present.contract_words import (
    LOOKUPS,
    absence_in_words,
    duration,
    key_in_words,
    pattern_in_words,
    window_in_words,
)
from reconciliation.contracts import (
    AmountMust,
    Fact,
    KeyScope,
    OnInFlight,
    OnOtherPayload,
    ProviderAccount,
    Replays,
    WindowKind,
)

# More comparisons than this are counted, not listed.
LISTED_MAX: Final = 12

_SCOPES: Final[dict[KeyScope, str]] = {
    KeyScope.NONE: "Nowhere: no key is honoured",
    KeyScope.ACCOUNT: "The provider’s account",
    KeyScope.API_KEY: "One credential: another one forgets every key",
    KeyScope.REGION: "One region or regional endpoint",
    KeyScope.ENDPOINT: "One path and method",
    KeyScope.QUEUE: "One queue or topic",
}
_OTHER_PAYLOAD: Final[dict[OnOtherPayload, str]] = {
    OnOtherPayload.REFUSED: "Refused, with no effect",
    OnOtherPayload.REPLAYED: "The first answer again, with no word about the difference",
    OnOtherPayload.PERFORMED: "A second effect",
    OnOtherPayload.UNKNOWN: "Not published",
}
_IN_FLIGHT: Final[dict[OnInFlight, str]] = {
    OnInFlight.REFUSED: "Refused, with no second effect",
    OnInFlight.WAITS: "The answer comes when the first request has ended",
    OnInFlight.PERFORMED: "A second effect is possible",
    OnInFlight.UNKNOWN: "Not published",
}
_REPLAYS: Final[dict[Replays, str]] = {
    Replays.FIRST_ANSWER: "The first answer again, success or error",
    Replays.FIRST_SUCCESS: "The first success again; after an error the work is done anew",
    Replays.LATEST_STATUS: "The same effect, in the state that it has now",
    Replays.NOTHING: "The work is done anew",
    Replays.UNKNOWN: "Not published",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """One line of a contract: its field, what it says, and what Recourse makes of it.

    `built_in` is what the declaration says where something tighter is in force, else "".
    """

    field: str
    label: str
    value: str
    meaning: str
    sources: tuple[Fact, ...] = ()
    built_in: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromiseGroup:
    """Lines about one matter."""

    title: str
    lines: tuple[Promise, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    field: str
    label: str
    value: Callable[[ProviderAccount], str]
    meaning: Callable[[ProviderAccount], str]


def promises_of(
    account: ProviderAccount, *, declared: ProviderAccount | None = None
) -> tuple[PromiseGroup, ...]:
    """The contract of `account`, line by line; `declared` is the same account before it was tightened."""
    built_in = declared or account
    return tuple(
        PromiseGroup(
            title=title,
            lines=tuple(
                Promise(
                    field=line.field,
                    label=line.label,
                    value=line.value(account),
                    meaning=line.meaning(account),
                    sources=tuple(fact for fact in account.facts if fact.field == line.field),
                    built_in=line.value(built_in) if line.value(built_in) != line.value(account) else "",
                )
                for line in lines
            ),
        )
        for title, lines in _GROUPS
    )


# --- the lines -------------------------------------------------------------------------------------------


def _window_meaning(account: ProviderAccount) -> str:
    contract = account.contract
    if not contract.honours_key:
        return "Every repeat may be a second effect, so it takes two people."
    if contract.window_kind is WindowKind.UNPUBLISHED or contract.dedup_window_ms is None:
        return "No repeat can rely on it, so every one takes two people."
    rest = duration(contract.dedup_window_ms - contract.window_margin_ms)
    return (
        f"Inside it one person may repeat with the same key: for {rest} after the first send, less the time "
        "that a request takes. After it a repeat takes two people."
    )


def _lag_meaning(account: ProviderAccount) -> str:
    contract = account.contract
    if not contract.has_lookup:
        return "Nothing is looked up."
    if contract.visibility_lag_ms is None:
        return "No lookup is relied on to have shown an effect."
    return "“Not found” before that is no answer, and is asked again."


def _lag(account: ProviderAccount) -> str:
    lag_ms = account.contract.visibility_lag_ms
    if lag_ms is None:
        return "Not stated"
    return "At once" if lag_ms == 0 else f"Up to {duration(lag_ms)}"


def _lookup(account: ProviderAccount) -> str:
    if not account.lookups or not account.contract.has_lookup:
        return LOOKUPS[account.contract.lookup]
    ways = [f"{LOOKUPS[one.kind]}{' (never relied on)' if one.hint else ''}" for one in account.lookups]
    return "; then ".join(dict.fromkeys(ways))


def _lookup_meaning(account: ProviderAccount) -> str:
    contract = account.contract
    if not contract.has_lookup:
        return "A person decides by what they find out themselves."
    if contract.has_reliable_lookup:
        return "What is found is compared with what was asked, and confirms by itself if it is the same."
    return "It can find an effect. It can’t be relied on to have shown one."


def _listing(account: ProviderAccount) -> str:
    if not account.listing.offered:
        return "Can’t be listed"
    return "Listed, but not all of it" if account.listing.leaves_out else "Listed whole"


def _listing_meaning(account: ProviderAccount) -> str:
    way = account.listing
    if not way.offered:
        return f"After a restore only people can look for what the journal has forgotten. {way.why_not}"
    when = f"{duration(way.lag_ms)} after" if way.lag_ms else "once"
    asked = f"Asked after a restore, {when} everything under way has ended."
    return f"{asked} Not in the list: {way.leaves_out}" if way.leaves_out else asked


def _retention(account: ProviderAccount) -> str:
    kept = account.contract.lookup_retention_ms
    return "Not stated" if kept is None else f"{duration(kept)} from the first send"


def _proves(account: ProviderAccount) -> str:
    patterns = account.contract.proves_existence
    return "; ".join(pattern_in_words(one) for one in patterns) or "None known"


def _match(account: ProviderAccount) -> str:
    listed = account.contract.match_fields
    if not listed:
        return "Nothing is compared"
    if any(one.payload == "$.*" for one in listed):
        return "Every member of what was sent"
    named = ", ".join(one.payload.removeprefix("$.") for one in listed[:LISTED_MAX])
    return named if len(listed) <= LISTED_MAX else f"{named} and {len(listed) - LISTED_MAX} more"


def _success(account: ProviderAccount) -> str:
    rule = account.contract.success_when
    if rule is None:
        return "A record that is found has succeeded"
    refused = f"; without effect: {', '.join(rule.refused)}" if rule.refused else ""
    return f"{rule.path.removeprefix('$.')} is {' or '.join(rule.succeeded)}{refused}"


def _receipt(account: ProviderAccount) -> str:
    paths = account.contract.receipt
    carries = []
    if paths.key is not None:
        carries.append(f"our key at {paths.key}")
    if paths.reference is not None:
        carries.append(f"our reference at {paths.reference}")
    if not carries:
        return "Nothing of ours: only a direct reply names the operation"
    return "Carries " + " and ".join(carries)


def _receipt_meaning(account: ProviderAccount) -> str:
    paths = account.contract.receipt
    if paths.amount is None:
        return "A record without it is never ours."
    must = {
        AmountMust.EQUAL: "be the same",
        AmountMust.NOT_EXCEED: "not exceed ours",
        AmountMust.SAME_CURRENCY: "be of the same currency",
    }[paths.amount_must]
    return f"A record without it is never ours. Its amount must {must}."


def _said(sentence: str) -> Callable[[ProviderAccount], str]:
    return lambda _: sentence


def _if_key(
    sentence: str, *, otherwise: str = "Nothing protects a repeat."
) -> Callable[[ProviderAccount], str]:
    """What is true only where the provider honours a key, and what is so where it doesn't."""
    return lambda account: sentence if account.contract.honours_key else otherwise


_GROUPS: Final[tuple[tuple[str, tuple[_Line, ...]], ...]] = (
    (
        "The key",
        (
            _Line(
                field="key_format",
                label="How it travels",
                value=lambda account: key_in_words(account.contract),
                meaning=_if_key("The same key goes with every request for one operation."),
            ),
            _Line(
                field="key_field",
                label="Its name there",
                value=lambda account: account.contract.key_field or "None",
                meaning=_if_key(
                    "What a provider’s own log can be searched for.",
                    otherwise="There is none to search it for.",
                ),
            ),
            _Line(
                field="key_scope",
                label="Where it is recognised",
                value=lambda account: _SCOPES[account.contract.key_scope],
                meaning=_if_key(
                    "Whatever the scope, another address, path, region, credential or way of sending than at "
                    "the first send ends the protection."
                ),
            ),
            _Line(
                field="dedup_window_ms",
                label="How long it is recognised",
                value=lambda account: window_in_words(account.contract),
                meaning=_window_meaning,
            ),
            _Line(
                field="window_kind",
                label="How far that can be relied on",
                value=lambda account: {
                    WindowKind.DOCUMENTED: "The provider publishes it",
                    WindowKind.MINIMUM: "The provider promises at least that",
                    WindowKind.UNPUBLISHED: "Not at all",
                    WindowKind.NONE: "There is none",
                }[account.contract.window_kind],
                meaning=_if_key("Only a time that somebody promised allows a repeat by one person."),
            ),
            _Line(
                field="window_margin_ms",
                label="Taken off its end",
                value=lambda account: (
                    duration(account.contract.window_margin_ms)
                    if account.contract.window_margin_ms
                    else "Nothing"
                ),
                meaning=_if_key(
                    "For clocks that differ and requests that travel.",
                    otherwise="There is no time to take it from.",
                ),
            ),
        ),
    ),
    (
        "The same key again",
        (
            _Line(
                field="replays",
                label="After the first request has ended",
                value=lambda account: _REPLAYS[account.contract.replays],
                meaning=_if_key(
                    "What a repeat inside the window would get.", otherwise="What any repeat would get."
                ),
            ),
            _Line(
                field="on_in_flight",
                label="While the first request runs",
                value=lambda account: _IN_FLIGHT[account.contract.on_in_flight],
                meaning=_said("No repeat starts before every earlier request is quiet."),
            ),
            _Line(
                field="on_other_payload",
                label="With other content",
                value=lambda account: _OTHER_PAYLOAD[account.contract.on_other_payload],
                meaning=_said("Recourse never does it: one key, one operation, the same bytes."),
            ),
            _Line(
                field="rejection_replays",
                label="A refusal of a repeat",
                value=lambda account: (
                    "Is the first request’s own answer"
                    if account.contract.rejection_replays
                    else "Says nothing about earlier requests"
                ),
                meaning=lambda account: (
                    "It settles the operation as rejected."
                    if account.contract.rejection_replays
                    else "It settles nothing while an earlier request may have worked."
                ),
            ),
            _Line(
                field="proves_existence",
                label="Errors that prove the effect",
                value=_proves,
                meaning=_said("Such an answer is looked up; it never counts as a refusal."),
            ),
        ),
    ),
    (
        "Looking it up",
        (
            _Line(field="lookup", label="How it can be asked", value=_lookup, meaning=_lookup_meaning),
            _Line(
                field="visibility_lag_ms",
                label="How late an effect may appear",
                value=_lag,
                meaning=_lag_meaning,
            ),
            _Line(
                field="lookup_retention_ms",
                label="How long it can be asked",
                value=_retention,
                meaning=_said("After it “not found” proves nothing: the provider may have forgotten."),
            ),
            _Line(
                field="absence_is_proof",
                label="“Not found”",
                value=lambda account: absence_in_words(account.contract),
                meaning=lambda account: (
                    "Then the operation is ready to be sent again, by itself."
                    if account.contract.absence_is_proof
                    else "A person decides; nothing is concluded from it."
                ),
            ),
            _Line(
                field="listing",
                label="Everything made since a time",
                value=_listing,
                meaning=_listing_meaning,
            ),
            _Line(
                field="rate_limit_per_second",
                label="Lookups that we allow ourselves",
                value=lambda account: f"{account.contract.rate_limit_per_second:g} a second",
                meaning=_said("Counted over all workers together."),
            ),
        ),
    ),
    (
        "What counts as the receipt",
        (
            _Line(field="receipt", label="What it carries", value=_receipt, meaning=_receipt_meaning),
            _Line(
                field="match_fields",
                label="What must be the same",
                value=_match,
                meaning=_said("One difference, and it confirms nothing by itself."),
            ),
            _Line(
                field="success_when",
                label="What says that it happened",
                value=_success,
                meaning=_said("Found is not yet succeeded: any other state is not final."),
            ),
        ),
    ),
    (
        "How long a request counts as under way",
        (
            _Line(
                field="start_within_ms",
                label="A sender must start within",
                value=lambda account: duration(account.contract.start_within_ms),
                meaning=_said("Counted from when it first asked to send."),
            ),
            _Line(
                field="request_within_ms",
                label="One request may take",
                value=lambda account: duration(account.contract.request_within_ms),
                meaning=_said("From its first byte to the end of the answer."),
            ),
            _Line(
                field="in_flight_bound_ms",
                label="It may still take effect for",
                value=lambda account: duration(account.contract.in_flight_bound_ms),
                meaning=lambda account: (
                    "The three together are the quiet time: "
                    + duration(
                        account.contract.start_within_ms
                        + account.contract.request_within_ms
                        + account.contract.in_flight_bound_ms
                    )
                    + " in which no repeat starts and no absence is concluded."
                ),
            ),
            _Line(
                field="console_sends",
                label="The console’s own sender",
                value=lambda account: (
                    "May carry out a repeat" if account.console_sends else "Sends nothing here"
                ),
                meaning=lambda account: (
                    "A person chooses who sends: the console or the agent’s worker."
                    if account.console_sends
                    else "A repeat is carried out by the agent’s worker alone."
                ),
            ),
        ),
    ),
)
# What Recourse decides for itself; no provider's page could be a source for it.
OURS: Final = frozenset(
    {
        "window_margin_ms",
        "rate_limit_per_second",
        "start_within_ms",
        "request_within_ms",
        "console_sends",
        "match_fields",
    }
)
FIELDS: Final = tuple(line.field for _, lines in _GROUPS for line in lines)
