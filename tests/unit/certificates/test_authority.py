"""Tests of the authority for development, and of what it signs."""

import ipaddress
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from host_service.certificates.authority import Authority, ensure_host_certificate, issued_in
from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.identity import Use, load_certificates, read_identity

NOW = datetime.now(UTC)


def test_what_it_signs_is_taken_by_openssl_however_strict(authority: Authority) -> None:
    issued = authority.issue("runner", hosts=["runner.example.org", "192.0.2.7", "2001:db8::7"])
    for purpose in ("sslserver", "sslclient"):
        verified = subprocess.run(
            [
                *("openssl", "verify", "-x509_strict", "-purpose", purpose),
                *("-verify_hostname", "runner.example.org"),
                *("-CAfile", str(authority.certificate_file), str(issued.certificate)),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        assert verified.returncode == 0, verified.stderr
    assert issued.names == ("runner.example.org", "192.0.2.7", "2001:db8::7")


def test_certificates_say_what_they_are_for_and_no_more(authority: Authority) -> None:
    issued = authority.issue("host", hosts=["localhost", "127.0.0.1"])
    (certificate,) = load_certificates(issued.certificate)
    extensions = certificate.extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert not basic.value.ca
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.digital_signature
    assert not usage.value.key_cert_sign
    alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


def test_the_authority_may_sign_certificates_and_no_other_authority(authority: Authority) -> None:
    (certificate,) = load_certificates(authority.certificate_file)
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not usage.digital_signature


def test_a_clients_certificate_cannot_be_shown_by_a_server(authority: Authority) -> None:
    issued = authority.issue("ops", for_clients_only=True)
    assert issued.is_for_clients_only
    read_identity(issued.certificate, issued.key, Use.CLIENT)
    with pytest.raises(CertificateUnusable, match="for clients only"):
        read_identity(issued.certificate, issued.key, Use.SERVER)


def test_files_and_folders_are_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    authority = Authority.create(data / "certs")
    authority.issue("host", hosts=["localhost"])
    modes = {
        path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777
        for path in (data, *data.rglob("*"))
    }
    assert modes == {
        "data": 0o700,
        "data/certs": 0o700,
        "data/certs/ca.key": 0o600,
        "data/certs/ca.pem": 0o600,
        "data/certs/host.key": 0o600,
        "data/certs/host.pem": 0o600,
    }


def test_issuing_again_replaces_the_certificate_and_its_key(authority: Authority) -> None:
    first = authority.issue("host", hosts=["localhost"])
    before = first.certificate.read_bytes(), first.key.read_bytes()
    again = Authority.open(authority.folder).issue("host", hosts=["localhost"], days=7)
    after = again.certificate.read_bytes(), again.key.read_bytes()
    assert before[0] != after[0]
    assert before[1] != after[1]
    read_identity(again.certificate, again.key, Use.SERVER)
    left = again.expires_at - NOW
    assert timedelta(days=6, hours=23) < left < timedelta(days=7, hours=1)


def test_nothing_outlives_its_authority(tmp_path: Path) -> None:
    old = Authority.create(tmp_path, now=NOW - timedelta(days=700))
    issued = old.issue("host", hosts=["localhost"], days=90, now=NOW)
    (signer,) = load_certificates(old.certificate_file)
    assert issued.expires_at == signer.not_valid_after_utc


def test_an_authority_that_expired_signs_nothing(tmp_path: Path) -> None:
    Authority.create(tmp_path, now=NOW - timedelta(days=800))
    with pytest.raises(CertificateUnusable, match=r"expired on .*certs init --replace"):
        Authority.open(tmp_path)


def test_where_there_is_no_authority_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(CertificateUnusable, match="runmesh certs init"):
        Authority.open(tmp_path)


def test_a_key_of_another_authority_is_not_used(authority: Authority, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other")
    (authority.folder / "ca.key").write_bytes((other.folder / "ca.key").read_bytes())
    with pytest.raises(CertificateUnusable, match="is not the key"):
        Authority.open(authority.folder)


def test_an_authority_whose_key_others_may_read_is_not_used(authority: Authority) -> None:
    (authority.folder / "ca.key").chmod(0o644)
    with pytest.raises(CertificateUnusable, match="read or written by others"):
        Authority.open(authority.folder)


@pytest.mark.parametrize("name", ["ca", "", "../host", "Host", "a b", "x" * 65, "-x", "ключ"])
def test_names_that_would_be_other_files_are_refused(authority: Authority, name: str) -> None:
    with pytest.raises(CertificateUnusable, match="cannot be the name"):
        authority.issue(name, hosts=["localhost"])
    assert [each.name for each in issued_in(authority.folder)] == ["ca"]


@pytest.mark.parametrize("host", ["", "a..b", "x y", "http://x", "x:1", "-a", "münchen.example"])
def test_what_is_no_host_is_refused(authority: Authority, host: str) -> None:
    with pytest.raises(CertificateUnusable, match="neither a DNS name nor an IP address"):
        authority.issue("host", hosts=["localhost", host])


def test_a_wildcard_is_a_name(authority: Authority) -> None:
    assert authority.issue("host", hosts=["*.example.org"]).names == ("*.example.org",)


def test_two_authorities_do_not_share_a_name(authority: Authority, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other")
    names = {load_certificates(each.certificate_file)[0].subject for each in (authority, other)}
    assert len(names) == 2


def test_a_hosts_certificate_is_made_once_and_renewed_in_time(tmp_path: Path) -> None:
    files = ensure_host_certificate(tmp_path, ["localhost"])
    first = files.certificate.read_bytes()
    assert ensure_host_certificate(tmp_path, ["localhost"]) == files
    assert files.certificate.read_bytes() == first
    ensure_host_certificate(tmp_path, ["localhost"], now=NOW + timedelta(days=70))
    assert files.certificate.read_bytes() != first


def test_a_hosts_certificate_that_is_broken_is_replaced(tmp_path: Path) -> None:
    files = ensure_host_certificate(tmp_path, ["localhost"])
    files.certificate.write_text("broken")
    ensure_host_certificate(tmp_path, ["localhost"])
    read_identity(files.certificate, files.key, Use.SERVER)


def test_a_hosts_certificate_gets_further_names_and_keeps_those_it_has(tmp_path: Path) -> None:
    ensure_host_certificate(tmp_path, ["localhost"])
    ensure_host_certificate(tmp_path, ["LOCALHOST", "mesh.example.org", "::1"])
    _, host = issued_in(tmp_path)
    assert host.names == ("localhost", "mesh.example.org", "::1")
