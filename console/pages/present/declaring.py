"""The page on which a provider is declared: fields, text, what it would promise, and what is in the way."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Final, assert_never

from django.urls import reverse

from console.pages.declaration_fields import BY_NAME, FIELDS, SECTIONS, Field
from console.pages.declaration_forms import DeclarationDraft, digest_of
from console.pages.present.providers import sections_of, setup_facts
from console.pages.present.trial import trial_result
from console.pages.shapes import Banner, Choice, Code, Fact, FieldError, Phrase, Strong
from console.pages.shapes.declaring import DeclarationField, DeclarationSection, DeclaringPage, SampleView
from reconciliation.declaring import DeclarationMoved
from reconciliation.providers.base import NotSentSeen, ReceiptSeen, RejectedSeen, SendOutcome, UnknownSeen
from reconciliation.providers.declaration import Declared
from reconciliation.providers.transport import Call
from reconciliation.sampling import SAMPLE_KEY, SAMPLE_OPERATION, Sampled
from reconciliation.tightening import REASON_LENGTH_MIN

# How a fault says where in the text it stands.
_WHERE: Final = re.compile(r"^This declaration: (?:(?:\[[^\]]*\](?: #\d+)? )?[\w.]+: )?")
# A label that several sections have goes by its section's title too.
_LABELS: Final = Counter(one.label for section in SECTIONS for one in section.fields)
_NAMES: Final = {
    one.name: one.label if _LABELS[one.label] == 1 else f"{section.title}, {one.label}"
    for section in SECTIONS
    for one in section.fields
}
# What a file calls a field, or a choice of one, and the form calls by its label. A choice of one word alone
# ("none") is a word of every sentence too.
_LABEL_OF: Final = {
    **{word: label for one in FIELDS for word, label in one.words if "_" in word},
    **{
        place.removeprefix("contract."): _NAMES[one.name]
        for one in FIELDS
        for place in one.places
        if "." in place and ("." in place.removeprefix("contract.") or "_" in place)
    },
}
_LONGEST_FIRST: Final = "|".join(re.escape(one) for one in sorted(_LABEL_OF, key=len, reverse=True))
# Not inside of a longer name, such as a JSONPath, nor what was typed, which stands in quotes.
_FILE_WORDS: Final = re.compile(rf"(?<![\w.{{\"])(?:{_LONGEST_FIRST})(?![\w\"]|\.\w)")
# Two faults of one omission: nothing of ours is shown by a record, and our reference in particular isn't.
_NOTHING_OF_OURS: Final = "by_reference without receipt.key and receipt.reference"
_NO_REFERENCE: Final = "by_reference without receipt.reference"
_SAMPLE_FIELDS: Final = (
    Field(name="sample_payload", label="Payload that was sent, as JSON", kind="lines", hint="Empty is {}."),
    Field(name="sample_status", label="Status of the answer", hint="Such as 201. Empty is 200."),
    Field(
        name="sample_body",
        label="Body of the answer",
        kind="lines",
        hint="Write {key} and {operation} where the provider shows our key and our id.",
    ),
    Field(name="sample_tool", label="Tool", hint="Only where the declaration has a request for each tool."),
)
_TEXT: Final = Field(
    name="text",
    label="The declaration as TOML",
    kind="lines",
    hint="docs/providers/declared.md explains every line.",
)
_REASON: Final = Field(
    name="reason",
    label="Reason",
    kind="lines",
    hint=f"At least {REASON_LENGTH_MIN} characters. It is kept with the declaration.",
)


def closed_page(why_not: str) -> DeclaringPage:
    """What somebody sees who may not declare a provider."""
    return DeclaringPage(title="Declare a provider", href=reverse("provider_new"), closed=why_not)


def declaring_page(
    draft: DeclarationDraft,
    *,
    slug: str = "",
    declared: Declared | None = None,
    sampled: Sampled | None = None,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
) -> DeclaringPage:
    """The form with everything typed; `declared` is what the text says, where it can be read."""
    errors = _once(errors, draft)
    ready = declared is not None and not any(one.field != "reason" for one in errors)
    account = declared.account if declared is not None else None
    wrong = {one.field for one in errors}
    return DeclaringPage(
        title=f"Declare “{slug}” anew" if slug else "Declare a provider",
        href=reverse("provider_new"),
        slug=slug,
        sections=tuple(
            DeclarationSection(
                name=section.name,
                title=section.title,
                text=section.text,
                fields=tuple(_field(one, draft, errors) for one in section.fields),
                opened=section is SECTIONS[0] or any(one.name in wrong for one in section.fields),
            )
            for section in SECTIONS
        ),
        text_field=_field(_TEXT, draft, errors),
        sample_fields=tuple(_field(one, draft, errors) for one in _SAMPLE_FIELDS),
        reason_field=_field(_REASON, draft, errors),
        by_text=draft.by_text,
        seen_number=max(draft.seen_number, 0),
        shown_digest=digest_of(draft["text"]) if ready else "",
        ready=ready,
        promises=sections_of(account) if account is not None else (),
        promised="As it would stand once it is saved",
        setup=setup_facts(account) if account is not None else (),
        sample=_sample(sampled) if sampled is not None else None,
        errors=tuple(_named(one, draft) for one in errors),
        banner=banner,
    )


def _once(errors: tuple[FieldError, ...], draft: DeclarationDraft) -> tuple[FieldError, ...]:
    """Without what another fault of the same field says more exactly; a text is told of each."""
    exact = any(_NO_REFERENCE in one.sentence for one in errors)
    if draft.by_text or not exact:
        return errors
    return tuple(one for one in errors if _NOTHING_OF_OURS not in one.sentence)


def _in_labels(sentence: str) -> str:
    """The sentence with the form's labels for what a file calls by its own names."""
    return _FILE_WORDS.sub(lambda found: f"“{_LABEL_OF[found[0]]}”", sentence)


def _named(error: FieldError, draft: DeclarationDraft) -> FieldError:
    """The fault for the list over the form: it begins with the field's label."""
    name = _NAMES.get(error.field)
    return replace(error, sentence=f"{name}: {_sentence(error, draft)}") if name else error


def _sentence(error: FieldError, draft: DeclarationDraft) -> str:
    """The fault beside a field, which needn't repeat where in the text it would stand; a text's lines do."""
    if draft.by_text or error.field not in BY_NAME:
        return error.sentence
    said = _WHERE.sub("", error.sentence, count=1).replace("found None", "found nothing")
    # Fields take a duration with its unit.
    said = said.replace("allowed: the window in milliseconds", "allowed: a time with its unit, such as 24 h")
    # The text has tables where the form has one field.
    said = said.replace("allowed: a table with path", "allowed: a path")
    if error.field == "base_url":
        said = said.replace("allowed: a table", "allowed: an address, such as https://api.shop.internal/v1")
    said = said.replace("allowed: receipt.reference", "allowed: one with it, under “What an answer says”")
    said = _in_labels(said)
    return said[:1].upper() + said[1:]


def _field(one: Field, draft: DeclarationDraft, errors: tuple[FieldError, ...]) -> DeclarationField:
    value = draft[one.name]
    choices = tuple(Choice(value=word, label=label, selected=word == value) for word, label in one.words)
    if one.kind == "switch":
        choices = (
            Choice(value="", label="No", selected=value != "yes"),
            Choice(value="yes", label="Yes", selected=value == "yes"),
        )
    return DeclarationField(
        name=one.name,
        label=one.label,
        kind="choice" if one.kind == "switch" else one.kind,
        value=value,
        hint=one.hint,
        choices=choices,
        errors=tuple(_sentence(error, draft) for error in errors if error.field == one.name),
    )


# --- sample answers --------------------------------------------------------------------------------------


def _sample(done: Sampled) -> SampleView:
    facts = [
        Fact(label="The request that would be sent", value=_request(done.sent)),
        Fact(label="As the reply to it", value=(Strong(_outcome(done.reply)),), note=(done.reply.summary,)),
    ]
    if done.lookup is not None:
        facts.append(Fact(label="The question that would be asked", value=_request(done.asked)))
    facts.append(
        Fact(
            label="In the answer",
            value=("{key} is ", Code(SAMPLE_KEY), ", {operation} is ", Code(SAMPLE_OPERATION)),
        )
    )
    lookup = trial_result(done.lookup, now=done.lookup.asked_at) if done.lookup is not None else None
    return SampleView(facts=tuple(facts), lookup=lookup)


def _request(call: Call | None) -> Phrase:
    if call is None:
        return ("None: it can’t be made",)
    body = f" {call.content.decode('utf-8', 'replace')}" if call.content else ""
    return (Code(f"{call.method} {call.url}{body}"[:2_000]),)


def _outcome(outcome: SendOutcome) -> str:
    match outcome:
        case ReceiptSeen():
            return "Confirmed: it is a receipt"
        case RejectedSeen():
            return "Rejected: a definite refusal"
        case NotSentSeen():
            return "Not sent"
        case UnknownSeen():
            return "Unknown: a case opens, and it is looked up"
    assert_never(outcome)


# --- refusals --------------------------------------------------------------------------------------------


def not_declared(sentence: str) -> Banner:
    """A refusal in its own words."""
    return Banner(
        title=("Nothing was declared.",),
        icon="octagon-x",
        tone="red",
        text=(sentence,),
        kept="What you typed is kept",
        focus=True,
    )


def declared_meanwhile(refusal: DeclarationMoved) -> Banner:
    """Somebody else was first: who and why, and what can be done about it."""
    return Banner(
        title=("This account was declared while you were writing. Nothing of yours was recorded.",),
        icon="git-compare",
        tone="amber",
        text=(
            f"{refusal.sentence} Open the account, read what is declared there, and declare it anew from it.",
        ),
        quote=str(refusal.details.get("their_reason", "")),
        kept="What you typed is kept",
        focus=True,
    )


def look_first() -> Banner:
    """What is saved is what was seen; this wasn't."""
    return Banner(
        title=("Read it before you save it.",),
        icon="info",
        tone="amber",
        text=("The declaration is another than the one that was shown. Here it is; nothing was saved.",),
        kept="What you typed is kept",
        focus=True,
    )
