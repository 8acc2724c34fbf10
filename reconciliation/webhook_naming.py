"""Which operation a signed notice is about: by our key or reference in it, or by what the payload said.

Most providers carry our operation's id or key. Some carry only a reference that the agent chose itself, and
then the operations that anything is still to be found out about are looked through for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from django.db import connection

from reconciliation.contracts import Contract, ReferenceForm
from reconciliation.providers.base import MatchedBy
from reconciliation.providers.matching import Subject, our_reference
from reconciliation.providers.paths import text_at
from reconciliation.providers.templates import Template
from reconciliation.providers.webhook_table import EventRule
from reconciliation.webhook_judging import SignedNotice
from runs.canonical import canonical_bytes
from runs.ids import ALPHABET, ULID_LENGTH
from runs.models import Operation, Receipt

# A marker of ours in a longer text is looked for in this much of it.
NAMING_TEXT_MAX = 64 * 1024
# Longer than any reference that a provider takes (Adyen: 80).
OWN_REFERENCE_LENGTH_MAX = 255
# More payloads with the same text aren't looked at: nobody could tell whose notice it is.
PAYLOADS_MAX = 20

_OPERATION_ID = re.compile(rf"(?<![A-Za-z0-9_])op_[{ALPHABET}]{{{ULID_LENGTH}}}(?![A-Za-z0-9_])")
# No key of ours is longer (DESIGN law 3).
_KEY_LENGTH_MAX = 45
# So many cases of a team at the account, the newest, are looked through for what was given up.
CASES_MAX = 1_000
# By the open attempts and the open cases, of which there are few: no index finds operations by their state,
# and none by their payload. Beside them stands what was sent and is settled without a provider's receipt,
# given up most of all: its effect may still be told of, and whoever asks anew gives the same reference.
_PERHAPS_MEANT = """
SELECT o.id, o.key, o.tool, o.payload FROM runs_operation o
WHERE o.provider_id = %(account)s AND position(%(member)s::bytea IN o.payload) > 0 AND o.id IN (
    SELECT a.operation_id FROM runs_attempt a WHERE a.outcome = 'open'
    UNION
    SELECT c.operation_id FROM reconciliation_case c
    WHERE c.provider_slug = %(account)s AND c.state <> 'resolved'
    UNION
    SELECT settled.id FROM runs_team team CROSS JOIN LATERAL (
        SELECT c.operation_id FROM reconciliation_case c
        WHERE c.team_id = team.slug AND c.provider_slug = %(account)s
        ORDER BY c.opened_at DESC, c.id DESC LIMIT %(cases)s
    ) AS latest JOIN runs_operation settled ON settled.id = latest.operation_id
    WHERE settled.settled_at IS NOT NULL AND settled.first_sent_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM runs_receipt r WHERE r.operation_id = settled.id AND r.matched_by <> 'person'
    )
)
LIMIT %(limit)s
"""


def named_operation(
    event: SignedNotice, rule: EventRule, contract: Contract, record: dict[str, Any]
) -> tuple[str, MatchedBy] | None:
    """The operation of this account that the notice names, and by what; None if it names none of ours."""
    ours = Operation.objects.filter(provider_id=event.account)
    for text in _naming_texts(event, rule, contract, record):
        if len(text) <= _KEY_LENGTH_MAX and (by_key := ours.filter(key=text).first()) is not None:
            return by_key.pk, MatchedBy.KEY
        for found in dict.fromkeys(_OPERATION_ID.findall(text[:NAMING_TEXT_MAX])):
            if ours.filter(pk=found).exists():
                return found, MatchedBy.REFERENCE
    return _by_own_reference(event, contract, record)


def _naming_texts(
    event: SignedNotice, rule: EventRule, contract: Contract, record: dict[str, Any]
) -> Iterator[str]:
    places = [(path, event.document) for path in rule.named_by]
    places += [(path, record) for path in (contract.receipt.key, contract.receipt.reference) if path]
    for path, document in places:
        if text := text_at(path, document):
            yield text


def _by_own_reference(
    event: SignedNotice, contract: Contract, record: dict[str, Any]
) -> tuple[str, MatchedBy] | None:
    """The one operation whose payload gave the reference that the record carries, where it travels so.

    What was confirmed is known by its receipt. Two others that gave the same one can't be told apart, whether
    they are settled or not: neither is meant.
    """
    member = Template(contract.receipt.our_reference or "").alone or ""
    seen = text_at(contract.receipt.reference, record)
    whole = contract.receipt.reference_form is ReferenceForm.WHOLE
    if not (whole and member.startswith("payload.") and seen and len(seen) <= OWN_REFERENCE_LENGTH_MAX):
        return None
    receipt = text_at(contract.receipt.id, record) or ""
    settled = Receipt.objects.filter(provider=event.account, reference=receipt).values_list(
        "operation", flat=True
    )
    if (confirmed := settled.first()) is not None:
        return str(confirmed), MatchedBy.REFERENCE
    found = [
        one for one in _payloads_with(event.account, member, seen) if our_reference(contract, one) == seen
    ]
    return (found[0].operation_id, MatchedBy.REFERENCE) if len(found) == 1 else None


def _payloads_with(account: str, member: str, text: str) -> list[Subject]:
    """What a notice may be about of the operations whose payload has a member with this text; none if that is
    too much.
    """
    name = canonical_bytes(member.rpartition(".")[2])
    values: dict[str, str | bytes | int] = {
        "account": account,
        "member": name + b":" + canonical_bytes(text),
        "limit": PAYLOADS_MAX + 1,
        "cases": CASES_MAX,
    }
    with connection.cursor() as cursor:
        cursor.execute(_PERHAPS_MEANT, values)
        rows = cursor.fetchall()
    if len(rows) > PAYLOADS_MAX:
        return []
    return [
        Subject(operation_id=pk, key=key, tool=tool, payload=json.loads(bytes(payload)), amount=None)
        for pk, key, tool, payload in rows
    ]
