"""Tests of what an address says about TLS."""

from pathlib import Path

import pytest

from host_service.certificates.files import SYSTEM, DialDefaults, DialFiles

CA, CERT, KEY = Path("/d/ca.pem"), Path("/d/host.pem"), Path("/d/host.key")
SOME = DialDefaults(ca=CA, certificate=CERT, key=KEY)


@pytest.mark.parametrize(
    ("defaults", "text", "found"),
    [
        (DialDefaults(), "runner:1", None),
        (SOME, "runner:1", DialFiles(ca=CA, certificate=CERT, key=KEY)),
        (SOME, "runner:1?tls=off", None),
        (SOME, "unix:/run/x.sock", None),
        (DialDefaults(), "runner:1?ca=system", DialFiles(ca=SYSTEM)),
        (SOME, "runner:1?ca=%2Fo%20p&name=x", DialFiles(
            ca=Path("/o p"), certificate=CERT, key=KEY, name="x"
        )),
        (SOME, "[::1]:1?cert=c&key=k", DialFiles(ca=CA, certificate=Path("c"), key=Path("k"))),
        (DialDefaults(certificate=CERT, key=KEY), "runner:1", None),
        (SOME, "dns:///runners:1?name=r", DialFiles(
            ca=CA, certificate=CERT, key=KEY, name="r"
        )),
    ],
)  # fmt: skip
def test_query_and_defaults_say_what_tls_is_made_of(
    defaults: DialDefaults, text: str, found: DialFiles | None
) -> None:
    assert defaults.split(text) == (text.partition("?")[0], found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("runner:1?", "nothing stands after"),
        ("runner:1?ca", "is not KEY=VALUE"),
        ("runner:1?ca=", "ca has no value"),
        ("runner:1?tls=on", "tls has only the value off"),
        ("runner:1?tls=off&ca=x", "tls=off stands alone"),
        ("runner:1?what=x", "'what' is not one of"),
        ("runner:1?ca=x&ca=y", "a key stands twice"),
        ("runner:1?ca=x&cert=y", "cert and key go together"),
        ("unix:/x?ca=y", "a socket has no TLS"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DialDefaults().split(text)


def test_who_names_what_to_show_must_say_whom_to_trust() -> None:
    with pytest.raises(ValueError, match="ca is missing"):
        DialDefaults().split("runner:1?name=x")
