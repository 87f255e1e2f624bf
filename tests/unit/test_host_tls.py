"""Tests of what a host makes of its TLS settings, and of where runners elsewhere reach it."""

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from host_service.certificates.authority import Authority
from host_service.certificates.files import DialDefaults, ListenFiles
from host_service.errors import StartupError
from host_service.host_tls import HostTls
from host_service.registry.dialled import Dialled
from host_service.registry.instance import Instance
from host_service.registry.records import FoundBy
from host_service.runs.host_addresses import HostApiAddresses
from host_service.settings import Settings

NO_TLS = HostTls(None, DialDefaults())


def _settings(folder: Path, *hosts: str, client: bool = False, days: int = 90) -> Settings:
    issued = Authority.create(folder).issue(
        "host",
        hosts=hosts,
        for_clients_only=client,
        days=days,
        now=datetime.now(UTC) - timedelta(days=10),
    )
    return Settings(tls=ListenFiles(certificate=issued.certificate, key=issued.key))


@pytest.mark.parametrize(
    ("listening", "chosen", "expected"),
    [
        ("127.0.0.1:50051", "", ""),
        ("[::1]:50051", "", ""),
        ("localhost:50051", "", ""),
        ("unix:/run/host.sock", "", ""),
        ("192.0.2.7:50051", "", "192.0.2.7:50051"),
        ("mesh.example:50051", "", "mesh.example:50051"),
        ("127.0.0.1:50051", "mesh.example:443", "mesh.example:443"),
        ("unix:/run/host.sock", "mesh.example:443", "mesh.example:443"),
        ("0.0.0.0:50051", "", f"{socket.gethostname()}:50051"),
    ],
)
def test_a_host_is_reached_where_it_listens_unless_an_operator_says_otherwise(
    listening: str, chosen: str, expected: str
) -> None:
    assert NO_TLS.advertised(listening, chosen) == expected


@pytest.mark.parametrize("wildcard", ["0.0.0.0:50051", "[::]:50051"])
def test_a_host_that_listens_everywhere_is_reached_by_a_name_of_its_certificate(
    tmp_path: Path, wildcard: str
) -> None:
    tls = HostTls.of(_settings(tmp_path, "localhost", "127.0.0.1", "*.x.example", "mesh.example"))
    assert tls.advertised(wildcard, "") == "mesh.example:50051"


def test_an_ipv6_address_of_the_certificate_stands_in_brackets(tmp_path: Path) -> None:
    tls = HostTls.of(_settings(tmp_path, "::1", "2001:db8::7"))
    assert tls.advertised("[::]:50051", "") == "[2001:db8::7]:50051"


def test_a_certificate_for_this_machine_alone_makes_no_address_for_others(tmp_path: Path) -> None:
    tls = HostTls.of(_settings(tmp_path, "localhost", "127.0.0.1"))
    assert tls.advertised("0.0.0.0:50051", "") == ""


def test_runners_are_shown_the_hosts_certificate_where_nothing_else_is_said(
    tmp_path: Path,
) -> None:
    settings = _settings(tmp_path, "localhost")
    assert settings.tls is not None
    dialling = HostTls.of(settings).dialling
    assert dialling == DialDefaults(certificate=settings.tls.certificate, key=settings.tls.key)


def test_what_cannot_be_used_keeps_the_host_from_starting(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="for clients only"):
        HostTls.of(_settings(tmp_path / "a", client=True))
    with pytest.raises(StartupError, match="expired on"):
        HostTls.of(_settings(tmp_path / "b", "localhost", days=1))
    settings = _settings(tmp_path / "c", "localhost")
    (tmp_path / "c" / "host.key").chmod(0o644)
    with pytest.raises(StartupError, match=r"read or written by others.*chmod 600"):
        HostTls.of(settings)


@pytest.mark.parametrize(("days", "is_warned"), [(23, True), (25, False)])
def test_a_certificate_that_expires_soon_is_warned_of(
    tmp_path: Path, days: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # Issued ten days ago.
    HostTls.of(_settings(tmp_path, "localhost", days=days))
    assert ("host.pem expires on" in caplog.text) is is_warned


@pytest.mark.parametrize(
    ("found_by", "address", "plain", "chosen"),
    [
        (FoundBy.FOLDER, "unix:/run/1.sock", "unix:/own", "unix:/own"),
        (FoundBy.STATIC, "unix:/run/1.sock", "unix:/own", "unix:/own"),
        (FoundBy.STATIC, "127.0.0.1:7443", "unix:/own", "mesh:1"),
        (FoundBy.STATIC, "[::1]:7443", "unix:/own", "mesh:1"),
        (FoundBy.STATIC, "192.0.2.7:7443", "mesh:1", "mesh:1"),
        (FoundBy.STATIC, "runner.example:7443", "mesh:1", "mesh:1"),
        (FoundBy.DNS, "192.0.2.8:7443", "mesh:1", "mesh:1"),
        (FoundBy.ATTACHED, "", "said", "said"),
    ],
)
async def test_each_instance_is_told_an_address_that_it_reaches(
    found_by: FoundBy, address: str, plain: str, chosen: str
) -> None:
    instance = Instance(
        plugin_id="acme/desk",
        found_by=found_by,
        address=address,
        reach=_Nowhere(),
        restarts=0,
        on_release=lambda _: None,
        host_address="said",
    )
    addresses = HostApiAddresses(socket="unix:/own", advertised="mesh:1")
    assert addresses.for_instance(instance) == plain
    addresses = HostApiAddresses(socket="unix:/own", advertised="mesh:1", is_chosen=True)
    assert addresses.for_instance(instance) == chosen


class _Nowhere(Dialled):
    """A reach that nobody uses."""

    def __init__(self) -> None:
        """Dials nobody."""
