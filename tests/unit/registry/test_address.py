"""Tests of `host_service.registry.address`."""

import pytest

from host_service.registry.address import RunnerAddress, parse_address
from host_service.registry.errors import AddressInvalid


@pytest.mark.parametrize(
    ("text", "target", "private"),
    [
        ("unix:/run/desk.sock", "unix:/run/desk.sock", True),
        ("unix:///run/desk.sock", "unix:/run/desk.sock", True),
        ("127.0.0.1:7443", "127.0.0.1:7443", True),
        ("127.8.9.1:1", "127.8.9.1:1", True),
        ("localhost:65535", "localhost:65535", True),
        ("[::1]:7443", "[::1]:7443", True),
        ("0.0.0.0:7443", "0.0.0.0:7443", False),
        ("10.0.0.1:7443", "10.0.0.1:7443", False),
        ("runners.prod:7443", "runners.prod:7443", False),
        ("localhost.evil.example:7443", "localhost.evil.example:7443", False),
        ("[2001:db8::1]:7443", "[2001:db8::1]:7443", False),
    ],
)
def test_address_is_read_and_known_as_private_or_not(
    text: str, target: str, *, private: bool
) -> None:
    assert parse_address(text) == RunnerAddress(target, private=private)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "neither"),
        ("desk", "neither"),
        ("127.0.0.1", "neither"),
        ("127.0.0.1:0", "1 to 65535"),
        ("127.0.0.1:70000", "1 to 65535"),
        ("http://127.0.0.1:80", "neither"),
        ("unix:desk.sock", "absolute"),
        ("unix:", "absolute"),
        ("unix:/run/a b.sock", "other characters"),
        ("unix:/run/%2e%2e/x", "other characters"),
        ("unix:/" + "d" * 107, "has 108 bytes; the limit is 107"),
    ],
)
def test_address_that_cannot_be_dialled_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(AddressInvalid, match=problem):
        parse_address(text)
