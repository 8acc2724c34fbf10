"""Idempotency keys: minted from a deployment secret, so that a restored journal mints the same again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from django.conf import settings

# 3 characters of prefix and 40 of base 32 (200 bits of HMAC): 43, under Square's 45 (DESIGN law 3).
KEY_PREFIX = "rk-"
KEY_CHARACTERS = 40


def mint_key(*, team: str, provider: str, flow: str, external_id: str, turn_index: int, call_id: str) -> str:
    """Return the key of one logical effect: the same words always give the same 43 ASCII characters.

    The words go through JSON so that no two different lists can run together into the same text.
    """
    words = json.dumps([team, provider, flow, external_id, turn_index, call_id], ensure_ascii=True)
    secret = str(settings.RECOURSE_KEY_SECRET).encode()
    mac = hmac.new(secret, words.encode("ascii"), hashlib.sha256).digest()
    return KEY_PREFIX + base64.b32encode(mac).decode("ascii")[:KEY_CHARACTERS].lower()
