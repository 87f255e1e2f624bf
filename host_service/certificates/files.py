"""Which files TLS is made of, as an operator named them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

#: Instead of a file of authorities: those that the machine trusts.
SYSTEM: Final = Path("system")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenFiles:
    """What a listener shows. All are PEM files.

    Attributes:
        certificate: The certificate, with its chain.
        key: Its key.
        client_ca: Who signs the certificates of clients, who then must show one. None: they need
            none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DialFiles:
    """What a connection trusts and shows. All are PEM files.

    Attributes:
        ca: Who signs the certificate of the other side; `SYSTEM`: whom the machine trusts.
        certificate: What is shown to a server that asks for it, with its chain; None: nothing.
        key: Its key.
        name: What the other side's certificate must be for; empty: what was dialled.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialDefaults:
    """What connections trust and show where their address says nothing of it.

    An address may end in `?ca=FILE&cert=FILE&key=FILE&name=NAME`, any of them, with `%` codes for
    what a query cannot hold; `?tls=off` wants no TLS.

    Attributes:
        ca: Who signs the certificates of the other sides; None: there is no TLS unless the address
            names whom it trusts.
        certificate: What is shown to a server that asks for it; None: nothing.
        key: Its key.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def split(self, text: str) -> tuple[str, DialFiles | None]:
        """Returns the address without its query, and what TLS is made of there; None: no TLS.

        Raises:
            ValueError: The query is malformed; the text says how.
        """
        address, asked, query = text.partition("?")
        given = _read_query(query) if asked else {}
        if given.pop("tls", None) == "off" or address.startswith("unix:"):
            if given or (asked and address.startswith("unix:")):
                raise ValueError("a socket has no TLS, and tls=off stands alone")
            return address, None
        ca = Path(given["ca"]) if "ca" in given else self.ca
        if ca is None:
            if given:
                raise ValueError("ca is missing: FILE, or 'system' for whom this machine trusts")
            return address, None
        pair = (self.certificate, self.key)
        if "cert" in given or "key" in given:
            if not {"cert", "key"} <= given.keys():
                raise ValueError("cert and key go together")
            pair = (Path(given["cert"]), Path(given["key"]))
        return address, DialFiles(
            ca=ca, certificate=pair[0], key=pair[1], name=given.get("name", "")
        )


_KEYS = ("ca", "cert", "key", "name", "tls")


def _read_query(query: str) -> dict[str, str]:
    if not query:
        raise ValueError("nothing stands after the ?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise ValueError(f"{query!r} is not KEY=VALUE&KEY=VALUE") from error
    given = dict(pairs)
    for key, value in pairs:
        if key not in _KEYS:
            raise ValueError(f"{key!r} is not one of {', '.join(_KEYS)}")
        if not value or (key == "tls" and value != "off"):
            raise ValueError(f"{key} has {'no value' if not value else 'only the value off'}")
    if len(given) != len(pairs):
        raise ValueError("a key stands twice")
    return given
