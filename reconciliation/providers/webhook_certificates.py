"""Signatures that a provider makes with a certificate's key, checked by the certificate that was given here.

Never by one that a notice points to: docs/decisions/0027 says why.
"""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

# What certificate authorities have issued for years; a shorter key would be a slip, or somebody else's.
KEY_BITS_MIN = 2_048


def public_key(pem: str, *, now: datetime) -> rsa.RSAPublicKey | None:
    """The key of the first certificate in a PEM text, which the others would vouch for.

    None where there is none that may be used at `now`: unreadable, not valid yet or any more, or another kind
    of key.
    """
    try:
        certificate = x509.load_pem_x509_certificates(pem.encode())[0]
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return None
    return key if isinstance(key, rsa.RSAPublicKey) and key.key_size >= KEY_BITS_MIN else None


def holds(key: rsa.RSAPublicKey, signature: bytes, content: bytes) -> bool:
    """Whether this signature, RSA with SHA-256 (PKCS #1 v1.5), was made over `content` by the key's owner."""
    try:
        key.verify(signature, content, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True
