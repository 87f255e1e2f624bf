"""Making and hashing of the secrets that the host gives out.

All of them are 256 random bits behind a prefix that says what they are, so that one that turns up
where it should not is recognised. Only hashes are kept; with so many random bits a plain SHA-256
needs no salt and no stretching.
"""

from __future__ import annotations

import hashlib
import secrets

API_KEY_PREFIX = "rmk_"
ATTACH_TOKEN_PREFIX = "rma_"  # noqa: S105 - a prefix, not a secret
RUN_TOKEN_PREFIX = "rmr_"  # noqa: S105 - a prefix, not a secret
INSTANCE_TOKEN_PREFIX = "rmi_"  # noqa: S105 - a prefix, not a secret


def new_secret(prefix: str) -> str:
    """Return a new random secret with this prefix: 43 characters of url-safe base64 behind it."""
    return prefix + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    """Return the 32 bytes by which a secret is looked up."""
    return hashlib.sha256(secret.encode()).digest()
