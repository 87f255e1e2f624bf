"""Signatures of packages: Ed25519 (RFC 8032) over the list of contents, kept inside the package.

Who is trusted is a folder's matter: each `*.pub` in it is a public key, and its name says whose.
"""

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from host_service.packages.errors import KeyUnusable, SignatureRefused

# What is signed begins with this, so that no signature for another purpose can stand for one.
_PURPOSE = b"runmesh package signature 1\n"
_FORM = re.compile(rb"runmesh signature 1\nkey ([0-9a-f]{64})\n([A-Za-z0-9+/=]{88})\n")
_LONGEST_KEY_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Signature:
    """A package's signature.

    Attributes:
        key_id: Which key made it: the SHA-256 of the public key's 32 bytes, in hexadecimal digits.
        value: The signature's 64 bytes.
    """

    key_id: str
    value: bytes

    @classmethod
    def read(cls, text: bytes) -> "Signature":
        """Reads a signature.

        Raises:
            SignatureRefused: It is not written as one.
        """
        match = _FORM.fullmatch(text)
        try:
            value = base64.b64decode(match[2], validate=True) if match else b""
        except binascii.Error:
            value = b""
        if match is None or len(value) != 64:
            raise SignatureRefused("the package's signature is not one", "pack and sign it again")
        return cls(match[1].decode(), value)

    def text(self) -> bytes:
        """The signature as it stands in the package."""
        encoded = base64.b64encode(self.value).decode()
        return f"runmesh signature 1\nkey {self.key_id}\n{encoded}\n".encode()


def new_key(path: Path) -> tuple[Path, str]:
    """Makes a key: the private one at `path` (mode 0600), the public one beside it as `*.pub`.

    Returns:
        The file of the public key, and the key's id.

    Raises:
        KeyUnusable: There is a file already.
    """
    private = Ed25519PrivateKey.generate()
    public_path = path.with_suffix(".pub")
    if public_path == path:
        raise KeyUnusable(f"{path} is the name of a public key", "name it *.key")
    _write_new(
        path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600
    )
    public = private.public_key()
    _write_new(
        public_path, public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644
    )
    return public_path, key_id(public)


def sign(contents: bytes, key: Path) -> Signature:
    """Signs a list of contents with the private key in a file.

    Raises:
        KeyUnusable: The file holds no such key.
    """
    try:
        private = load_pem_private_key(_read_key(key), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{key} holds no private key without a password") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyUnusable(f"{key} holds no Ed25519 key", "make one: runmesh sign --new-key FILE")
    return Signature(key_id(private.public_key()), private.sign(_PURPOSE + contents))


def key_id(key: Ed25519PublicKey) -> str:
    """A key's id: the SHA-256 of its 32 bytes."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The public keys whose signatures count.

    Attributes:
        by_id: Whose key it is, and the key, by its id.
    """

    by_id: Mapping[str, tuple[str, Ed25519PublicKey]]

    @classmethod
    def read(cls, folder: Path) -> "TrustedKeys":
        """Reads every `*.pub` of a folder; without the folder, nobody is trusted.

        Raises:
            KeyUnusable: A file holds no public key.
        """
        keys: dict[str, tuple[str, Ed25519PublicKey]] = {}
        for path in sorted(folder.glob("*.pub")):
            try:
                public = load_pem_public_key(_read_key(path))
            except (ValueError, UnsupportedAlgorithm) as error:
                raise KeyUnusable(f"{path} holds no public key") from error
            if not isinstance(public, Ed25519PublicKey):
                raise KeyUnusable(f"{path} holds no Ed25519 key")
            keys[key_id(public)] = (path.stem, public)
        return cls(keys)

    def signer(self, signature: Signature | None, contents: bytes) -> str:
        """Whose signature stands under a list of contents; empty: nobody's who is trusted.

        Raises:
            SignatureRefused: A trusted key's, but of something else.
        """
        if signature is None or signature.key_id not in self.by_id:
            return ""
        name, public = self.by_id[signature.key_id]
        try:
            public.verify(signature.value, _PURPOSE + contents)
        except InvalidSignature as error:
            raise SignatureRefused(
                f"the signature that names the key of {name} is not of this package"
            ) from error
        return name


def _read_key(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_KEY_BYTES)
    except OSError as error:
        raise KeyUnusable(f"{path} cannot be read: {error.strerror}") from error


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise KeyUnusable(f"{path} is there already", "choose another name") from error
    except OSError as error:
        raise KeyUnusable(f"{path} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
