"""A value that has not the form expected is refused with the value and the form."""

from collections.abc import Callable

import pytest
import typer

from host_service.cli import options


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (options.listen_address, "127.0.0.1:0"),
        (options.listen_address, "localhost:65535"),
        (options.listen_address, "[::1]:50051"),
        (options.listen_address, "unix:/run/host.sock"),
        (options.http_address, "0.0.0.0:8080"),
        (options.dial_address, "dns:///runners.prod:7443"),
        (options.database_url, "postgresql+psycopg://me:secret@db/mesh"),
        (options.database_url, "sqlite:////var/lib/mesh.db"),
    ],
)
def test_a_value_of_the_right_form_is_kept(check: Callable[[str], str], value: str) -> None:
    assert check(value) == value


@pytest.mark.parametrize("value", ["", "off"])
def test_http_can_be_turned_off(value: str) -> None:
    assert options.http_address(value) == ""


def test_a_static_runner_is_an_id_and_an_address() -> None:
    assert options.static_runner("acme/help=unix:/r.sock") == ("acme/help", "unix:/r.sock")


@pytest.mark.parametrize(
    ("check", "value", "form"),
    [
        (options.listen_address, "50051", "HOST:PORT"),
        (options.listen_address, "host:65536", "HOST:PORT"),
        (options.listen_address, "host:", "HOST:PORT"),
        (options.listen_address, "::1:50051", "[IPV6]:PORT"),
        (options.listen_address, "http://host:1", "HOST:PORT"),
        (options.listen_address, "unix:relative", "unix:/absolute/path"),
        (options.listen_address, "unix:/" + "x" * 107, "has 108 bytes"),
        (options.http_address, "unix:/a", "HOST:PORT"),
        (options.dial_address, "dns:///name", "dns:///NAME:PORT"),
        (options.static_runner, "help=127.0.0.1:1", "AUTHOR/NAME=ADDRESS"),
        (options.static_runner, "Acme/help=127.0.0.1:1", "AUTHOR/NAME=ADDRESS"),
        (options.static_runner, "acme/help=nowhere", "HOST:PORT"),
        (options.database_url, "mesh.db", "database URL"),
        (options.positive_number, "0", "above 0"),
        (options.positive_number, "1.5", "a whole number"),
        (options.whole_number, "-1", "a whole number"),
        (options.whole_number, "9223372036854775808", "a whole number"),
        (options.whole_number, "٣", "a whole number"),
    ],
)
def test_a_value_of_another_form_is_refused_with_value_and_form(
    check: Callable[[str], object], value: str, form: str
) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        check(value)
    assert form in refused.value.message
    assert repr(value.rpartition("=")[2].removeprefix("unix:")[:20])[1:-1] in refused.value.message


def test_a_password_stays_out_of_the_message() -> None:
    with pytest.raises(typer.BadParameter) as refused:
        options.database_url("postgresql+!://me:secret@db/mesh")
    assert "secret" not in refused.value.message
    assert "me:***@db" in refused.value.message


@pytest.mark.parametrize(
    ("address", "stays"),
    [
        ("unix:/a", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("dns:///localhost:1", True),
        ("10.0.0.1:1", False),
        ("127.example.com:1", False),
        ("dns:///prod:1", False),
    ],
)
def test_only_what_stays_on_this_machine_is_loopback(address: str, stays: bool) -> None:
    assert options.is_loopback(address) is stays
