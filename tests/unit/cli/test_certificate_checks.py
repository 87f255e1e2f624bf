"""Tests of what `runmesh doctor` says of certificates."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from host_service.certificates.authority import Authority
from host_service.certificates.files import ListenFiles
from host_service.cli.certificate_checks import check_certificates
from host_service.cli.certificate_folder import certificates_of
from host_service.cli.running_host import RunningHost

NOW = datetime.now(UTC)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder whose authority signed a certificate for 90 days."""
    authority = Authority.create(certificates_of(tmp_path), now=NOW)
    authority.issue("host", hosts=["localhost"], now=NOW)
    return tmp_path


def _files(data: Path) -> ListenFiles:
    folder = certificates_of(data)
    return ListenFiles(certificate=folder / "host.pem", key=folder / "host.key")


def _host(data: Path) -> RunningHost:
    files = _files(data)
    return RunningHost(
        process_id=1,
        grpc="",
        socket="unix:/nowhere",
        tls_certificate=str(files.certificate),
        tls_key=str(files.key),
    )


def _look(
    data: Path, files: ListenFiles | None, host: RunningHost | None = None, *, days: float = 0
) -> list[tuple[str, str, str]]:
    """What it says after so many days: levels, and what was told and advised."""
    then = NOW + timedelta(days=days)
    found = check_certificates(data, files, host, clock=lambda: then)
    return [(finding.level, finding.told, finding.advice) for finding in found]


def test_where_there_is_no_tls_nothing_is_said(tmp_path: Path) -> None:
    assert _look(tmp_path, None) == []


@pytest.mark.parametrize(("days", "level"), [(0, "ok"), (75, "ok"), (77, "warning")])
def test_the_last_two_weeks_are_warned_of(data: Path, days: int, level: str) -> None:
    ((found, told, _),) = _look(data, _files(data), days=days)
    assert found == level
    assert f"host.pem is good until {NOW + timedelta(days=90):%Y-%m-%d}" in told


def test_what_has_expired_is_a_problem(data: Path) -> None:
    ((level, told, _),) = _look(data, _files(data), days=91)
    assert (level, "expired on" in told) == ("problem", True)


def test_what_a_running_host_names_comes_before_options(data: Path, tmp_path: Path) -> None:
    elsewhere = ListenFiles(certificate=tmp_path / "no.pem", key=tmp_path / "no.key")
    ((level, told, _),) = _look(data, elsewhere, _host(data))
    assert (level, "host.pem is good" in told) == ("ok", True)


def test_a_broken_file_under_a_host_says_what_the_host_does(data: Path) -> None:
    _files(data).certificate.write_text("broken")
    levels = _look(data, None, _host(data))
    assert ("problem", "the host goes on with what it read before") in [
        (level, told.rpartition("; ")[2]) for level, told, _ in levels
    ]
    ((_, told, _), *_) = _look(data, _files(data))
    assert "the host goes on" not in told


def test_an_authority_of_clients_that_is_gone_is_a_problem(data: Path) -> None:
    files = replace(_files(data), client_ca=data / "gone.pem")
    ((level, told, _), *_) = _look(data, files)
    assert (level, "gone.pem cannot be read" in told) == ("problem", True)


def test_an_open_key_in_the_folder_is_a_problem(data: Path) -> None:
    (certificates_of(data) / "ca.key").chmod(0o644)
    ((level, told, advice),) = _look(data, None)
    assert level == "problem"
    assert "ca.key may be read or written by others" in told
    assert "chmod 600" in advice


def test_what_was_issued_and_ends_soon_is_told_with_how_to_renew_it(data: Path) -> None:
    assert _look(data, None) == []
    ((level, told, advice),) = _look(data, None, days=80)
    assert (level, "host.pem expires on" in told) == ("warning", True)
    assert "runmesh certs issue host" in advice
    ends = _look(data, None, days=800)
    assert [(level, "expired on" in told) for level, told, _ in ends] == [("warning", True)] * 2
    assert "certs init --replace" in ends[0][2]
