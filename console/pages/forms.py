"""The decision form: what a person typed and chose, read from a POST, kept through every refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from console.pages.shapes import Draft, FieldError, HiddenField
from reconciliation.asked import THEN_IS_SAID
from reconciliation.decisions import REASON_LENGTH_MAX, REASON_LENGTH_MIN, Asked, GivenReceipt
from reconciliation.states import Action, Permission, ReasonCode, Then
from runs.ids import could_be_id, new_id
from runs.states import Executor

# The record of an effect is rarely a page long; evidence keeps 64 KiB.
BODY_LENGTH_MAX: Final = 64 * 1024
REFERENCE_LENGTH_MAX: Final = 300
# One that is on record is named by its evidence and its reference, "ev_…/re_3SxBq81".
# The receipt isn't on record: the person gives it.
GIVEN: Final = "given"
# There is none to give: two people say that it happened.
WITHOUT: Final = "without"
_FIELDS: Final = (
    "action",
    "executor",
    "then",
    "then_absent",
    "receipt",
    "given_reference",
    "given_body",
    "reason_code",
    "reason",
    "seen_version",
    "evidence_digest",
    "idempotency_key",
)


@dataclass(frozen=True)
class DecisionForm:
    """The fields as they came, bounded; `errors` by `check`."""

    fields: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def action(self) -> Action | None:
        return Action(self["action"]) if self["action"] in set(Action) else None

    @property
    def draft(self) -> Draft:
        return Draft(
            action=self["action"],
            reason_code=self["reason_code"],
            reason=self["reason"],
            acknowledged=self["acknowledged"] == "yes",
        )

    def check(
        self, *, permission: Permission | None, receipt_unlocks: bool = False
    ) -> tuple[FieldError, ...]:
        """What is missing, in the order of the form. Whether the action may be done is not asked here."""
        errors: list[FieldError] = []
        if self.action is None:
            errors.append(FieldError(field="action", sentence="Choose what you want to record"))
        errors += self._check_action(permission, receipt_unlocks)
        if self["reason_code"] not in set(ReasonCode):
            errors.append(FieldError(field="reason_code", sentence="Choose a reason code"))
        length = len(self["reason"].strip())
        if length < REASON_LENGTH_MIN:
            counted = f"{length} character{'' if length == 1 else 's'} so far, {REASON_LENGTH_MIN} needed"
            errors.append(
                FieldError(field="reason", sentence=counted if length else "Say why, in your own words")
            )
        if length > REASON_LENGTH_MAX:
            errors.append(
                FieldError(field="reason", sentence=f"{length:,} characters; {REASON_LENGTH_MAX:,} fit")
            )
        return tuple(errors)

    def _check_action(self, permission: Permission | None, receipt_unlocks: bool) -> list[FieldError]:
        action = self.action
        if action is Action.RETRY and self["executor"] not in set(Executor):
            return [FieldError(field="executor", sentence="Say who sends it")]
        if action in THEN_IS_SAID and self[self._then_of(action)] not in set(Then):
            return [FieldError(field=self._then_of(action), sentence="Say whether the run ends or goes on")]
        return self._check_receipt(permission, receipt_unlocks) if action is Action.CONFIRM else []

    @staticmethod
    def _then_of(action: Action | None) -> str:
        """The name of the field: each action has its own on the page, and both are sent."""
        return "then_absent" if action is Action.MAKE_ABSENT else "then"

    @property
    def then(self) -> str:
        """What becomes of the run, as chosen for the action that is chosen."""
        return self[self._then_of(self.action)]

    def _check_receipt(self, permission: Permission | None, receipt_unlocks: bool) -> list[FieldError]:
        among_several = permission is Permission.SECOND_PERSON and not receipt_unlocks
        if (permission is Permission.ALLOWED or among_several) and not self["receipt"]:
            return [FieldError(field="receipt", sentence="Choose the receipt")]
        if not self.gives_record:
            return []
        if not self["given_body"].strip():
            return [FieldError(field="given_body", sentence="Paste the provider’s record of it, as JSON")]
        if len(self["given_body"].encode("utf-8", "replace")) > BODY_LENGTH_MAX:
            return [FieldError(field="given_body", sentence="At most 64 KiB of a record are taken")]
        return []

    @property
    def gives_record(self) -> bool:
        """Whether the receipt is to be what the person pasted, rather than one on record."""
        return self["receipt"] in ("", GIVEN)

    @property
    def receipt(self) -> GivenReceipt | None:
        if self.action is not Action.CONFIRM:
            return None
        if self["receipt"] == WITHOUT:
            return GivenReceipt(reference=self["given_reference"].strip()[:REFERENCE_LENGTH_MAX])
        if self.gives_record:
            return GivenReceipt(
                reference=self["given_reference"].strip()[:REFERENCE_LENGTH_MAX],
                body=self["given_body"].strip().encode("utf-8", "replace"),
            )
        evidence_id, _, reference = self["receipt"].partition("/")
        return GivenReceipt(evidence_id=evidence_id, reference=reference)

    def asked(self, action: Action, *, idempotency_key: str) -> Asked:
        """The decision to ask the domain for; an odd version can only be stale, never another one."""
        version = self["seen_version"]
        return Asked(
            action=action,
            seen_version=int(version) if version.isdecimal() and len(version) < 10 else 0,
            evidence_digest=self["evidence_digest"],
            reason_code=self["reason_code"],
            reason=self["reason"].strip(),
            idempotency_key=idempotency_key,
            executor=self["executor"] if action is Action.RETRY else "",
            then=self[self._then_of(action)] if action in THEN_IS_SAID else "",
            receipt=self.receipt,
        )

    def hidden(self, *, idempotency_key: str) -> tuple[HiddenField, ...]:
        """What the confirming form carries along unseen."""
        carried = [name for name in _FIELDS if name not in ("reason", "idempotency_key") and self[name]]
        return (
            *(HiddenField(name=name, value=self[name]) for name in carried),
            HiddenField(name="idempotency_key", value=idempotency_key),
        )


def read_form(posted: Mapping[str, str]) -> DecisionForm:
    """The decision form of a POST. Line ends are as people see them; what can't be stored is replaced."""
    # Wider than what is accepted, so that somebody who pasted too much gets it back.
    limits = {"given_body": BODY_LENGTH_MAX * 4, "reason": REASON_LENGTH_MAX * 4}
    return DecisionForm(
        {
            name: clean(posted[name])[: limits.get(name, 1_000)]
            for name in (*_FIELDS, "acknowledged")
            if posted.get(name)
        }
    )


def clean(text: str) -> str:
    text = text.replace("\r\n", "\n")
    return "".join("\ufffd" if one == "\x00" or 0xD800 <= ord(one) < 0xE000 else one for one in text)


def idempotency_key_of(form: DecisionForm) -> str:
    """The key that the review minted; a form that came another way gets one of its own."""
    key = form["idempotency_key"]
    return key if could_be_id(key) else new_id("form")
