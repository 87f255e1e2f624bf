"""Encrypting a secret for its place, and decrypting it there.

A sealed secret is a byte that names this form (1), a random nonce of 12 bytes, and the ciphertext
with its tag of 16, by AES-256-GCM. AES-GCM rather than Fernet, because Fernet takes no associated
data, which is what binds a ciphertext to its place. A random nonce is safe for 2**32 secrets a key.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stores.errors import SecretUnreadable
from stores.secret_keys import VARIABLE, SecretKey, SecretKeys
from stores.secrets import Secret, SecretOwner

_FORM = b"\x01"
_NONCE_BYTES = 12


def seal(key: SecretKey, owner: SecretOwner, name: str, text: str) -> bytes:
    """Encrypt a secret for its place."""
    nonce = os.urandom(_NONCE_BYTES)
    bound = _FORM + _place(owner, name)
    ciphertext = AESGCM(key.material).encrypt(nonce, text.encode(), bound)
    return _FORM + nonce + ciphertext


def unseal(keys: SecretKeys, key_id: str, owner: SecretOwner, name: str, sealed: bytes) -> Secret:
    """Decrypt a secret at its place.

    Raises:
        SecretUnreadable: Its key is not there, or it was not encrypted for this place.
    """
    key = keys.find(key_id)
    what = f"the secret {name!r} of {owner.kind} {owner.id!r}"
    if key is None:
        raise SecretUnreadable(
            f"{what} was encrypted with the key {key_id}, which is not here: add that key to "
            f"{VARIABLE} or the key file, behind the newest, or store the secret again",
            key_id=key_id,
        )
    nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
    bound = sealed[:1] + _place(owner, name)
    try:
        return Secret(AESGCM(key.material).decrypt(nonce, ciphertext, bound).decode())
    except (InvalidTag, ValueError) as error:
        raise SecretUnreadable(
            f"{what} does not decrypt: what is stored was changed or moved; store it again",
            key_id=key_id,
        ) from error


def _place(owner: SecretOwner, name: str) -> bytes:
    # Each part behind its length, so that no two places are one text.
    parts = [part.encode() for part in (owner.kind, owner.id, name)]
    return b"runmesh secret:" + b"".join(b"%d:%b" % (len(part), part) for part in parts)
