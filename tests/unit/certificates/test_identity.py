"""Tests of what is found wrong with certificates and keys before a handshake could fail."""

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from host_service.certificates.authority import Authority
from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.files import SYSTEM
from host_service.certificates.identity import Use, read_authorities, read_identity

NOW = datetime.now(UTC)


def _read(folder: Path, certificate: str = "host.pem", key: str = "host.key") -> None:
    read_identity(folder / certificate, folder / key, Use.SERVER)


def test_a_good_pair_is_read_with_its_names_and_its_end(authority: Authority) -> None:
    issued = authority.issue("host", hosts=["localhost", "127.0.0.1"])
    identity = read_identity(issued.certificate, issued.key, Use.SERVER)
    assert identity.chain == issued.certificate.read_bytes()
    assert identity.names == ("localhost", "127.0.0.1")
    assert identity.expires_at == issued.expires_at
    assert identity.is_for_clients
    assert "PRIVATE" not in repr(identity)


@pytest.mark.parametrize("name", ["host.pem", "host.key"])
def test_a_missing_file_is_named(authority: Authority, name: str) -> None:
    authority.issue("host", hosts=["localhost"])
    (authority.folder / name).unlink()
    with pytest.raises(CertificateUnusable, match=rf"{name} cannot be read \(No such file"):
        _read(authority.folder)


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    authority.issue("host", hosts=["localhost"])
    authority.issue("other", hosts=["localhost"])
    with pytest.raises(CertificateUnusable, match=r"other\.key is not that of the certificate"):
        _read(authority.folder, key="other.key")


def test_an_expired_certificate_is_refused_with_its_day(authority: Authority) -> None:
    issued = authority.issue("host", hosts=["localhost"], days=2, now=NOW - timedelta(days=5))
    with pytest.raises(CertificateUnusable, match=f"expired on {issued.expires_at:%Y-%m-%d}"):
        _read(authority.folder)


def test_a_certificate_of_the_future_points_to_the_clock(authority: Authority) -> None:
    authority.issue("host", hosts=["localhost"], now=NOW + timedelta(days=1))
    with pytest.raises(CertificateUnusable, match=r"is not valid before .* clock"):
        _read(authority.folder)


def test_a_certificate_without_names_is_refused(tmp_path: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-keyout", str(tmp_path / "host.key"), "-out", str(tmp_path / "host.pem")),
        ],
        check=True,
        capture_output=True,
    )
    (tmp_path / "host.key").chmod(0o600)
    with pytest.raises(CertificateUnusable, match="no subject alternative name"):
        _read(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_a_key_that_others_may_read_or_write_is_refused(authority: Authority, mode: int) -> None:
    key = authority.issue("host", hosts=["localhost"]).key
    key.chmod(mode)
    with pytest.raises(CertificateUnusable, match=f"mode {mode:04o}.*chmod 600"):
        _read(authority.folder)


@pytest.mark.parametrize(("mode", "is_taken"), [(0o640, True), (0o660, False), (0o644, False)])
def test_root_may_lend_a_key_to_a_group(
    authority: Authority, mode: int, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has files that belong to root")
    authority.issue("host", hosts=["localhost"]).key.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if is_taken:
        _read(authority.folder)
    else:
        with pytest.raises(CertificateUnusable, match="by others"):
            _read(authority.folder)


def test_a_key_with_a_password_is_refused_without_asking_for_it(authority: Authority) -> None:
    key = authority.issue("host", hosts=["localhost"]).key
    subprocess.run(
        [
            *("openssl", "pkcs8", "-topk8", "-in", str(key), "-passout", "pass:secret"),
            *("-out", str(authority.folder / "closed.key")),
        ],
        check=True,
        capture_output=True,
    )
    (authority.folder / "closed.key").chmod(0o600)
    with pytest.raises(CertificateUnusable, match="encrypted with a password"):
        _read(authority.folder, key="closed.key")


def test_files_that_hold_something_else_are_named(authority: Authority) -> None:
    authority.issue("host", hosts=["localhost"])
    junk = authority.folder / "junk"
    junk.write_text("junk")
    junk.chmod(0o600)
    with pytest.raises(CertificateUnusable, match="junk holds no certificate"):
        _read(authority.folder, certificate="junk")
    with pytest.raises(CertificateUnusable, match="junk holds no private key"):
        _read(authority.folder, key="junk")
    with pytest.raises(CertificateUnusable, match="junk holds no certificate"):
        read_authorities(junk)


def test_an_expired_certificate_between_is_found_too(authority: Authority, tmp_path: Path) -> None:
    host = authority.issue("host", hosts=["localhost"])
    old = Authority.create(tmp_path / "old", now=NOW - timedelta(days=800))
    with host.certificate.open("ab") as file:
        file.write(old.certificate_file.read_bytes())
    with pytest.raises(CertificateUnusable, match="expired on"):
        _read(authority.folder)


def test_the_authorities_of_the_machine_are_read_as_they_are() -> None:
    assert b"BEGIN CERTIFICATE" in read_authorities(SYSTEM)
