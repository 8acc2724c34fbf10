"""What is made from the deployment's secret: idempotency keys, and the mark of a lease that we gave out.

Both must come out the same from a restored journal: it mints the same keys again, and knows for its own what
it gave out in a time that it has forgotten.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from django.conf import settings

# 3 characters of prefix and 40 of base 32 (200 bits of HMAC): 43, under Square's 45 (DESIGN law 3).
KEY_PREFIX = "rk-"
KEY_CHARACTERS = 40
# Nobody can try marks out but by asking us, and each wrong one of 2^80 is only refused.
LEASE_MARK_BYTES = 10
_LEASE_MARKS = b"lease marks"


def mint_key(*, team: str, provider: str, flow: str, external_id: str, turn_index: int, call_id: str) -> str:
    """Return the key of one logical effect: the same words always give the same 43 ASCII characters.

    The words go through JSON so that no two different lists can run together into the same text.
    """
    words = key_words(
        team=team,
        provider=provider,
        flow=flow,
        external_id=external_id,
        turn_index=turn_index,
        call_id=call_id,
    )
    secret = str(settings.RECOURSE_KEY_SECRET).encode()
    mac = hmac.new(secret, words.encode("ascii"), hashlib.sha256).digest()
    return KEY_PREFIX + base64.b32encode(mac).decode("ascii")[:KEY_CHARACTERS].lower()


def key_words(*, team: str, provider: str, flow: str, external_id: str, turn_index: int, call_id: str) -> str:
    """Return what a key is minted from beside the secret, as JSON: for people to see, and for `mint_key`."""
    return json.dumps([team, provider, flow, external_id, turn_index, call_id], ensure_ascii=True)


def lease_mark(*, run: str, number: int, secret: str) -> str:
    """Return what only this deployment can have written behind a lease's number: 20 hexadecimal digits.

    The random part keeps two leases of one number apart, of which one was given in a time that was forgotten.
    """
    # A key of its own: no idempotency key, which providers and workers see, is ever a lease's mark.
    own_key = hmac.new(str(settings.RECOURSE_KEY_SECRET).encode(), _LEASE_MARKS, hashlib.sha256).digest()
    words = json.dumps([run, number, secret], ensure_ascii=True)
    return hmac.new(own_key, words.encode("ascii"), hashlib.sha256).hexdigest()[: 2 * LEASE_MARK_BYTES]
