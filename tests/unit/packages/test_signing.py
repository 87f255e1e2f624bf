"""Tests of signatures: who signed, what it covers, and what an operator demands."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from host_service.packages.errors import KeyUnusable, PolicyInvalid, SignatureRefused
from host_service.packages.package import Package
from host_service.packages.packing import PluginFolder, pack, sign_package
from host_service.packages.policy import PackagePolicy
from host_service.packages.signing import new_key, sign
from tests.unit.packages.folders import an_installer, write_plugin
from tests.unit.packages.raw_archives import Raw, archive, contents_of, written

ENTRIES = (
    Raw(
        "manifest.yaml",
        b"apiVersion: runmesh/v1\nkind: Plugin\n"
        b"metadata: { author: acme, name: weather, version: 1.0.0 }\nrun: { command: [./run] }\n",
    ),
)


def trusting(data: Path, *public: Path, required: bool = True) -> PackagePolicy:
    keys = data / "trusted-keys"
    keys.mkdir(parents=True, exist_ok=True)
    for path in public:
        (keys / path.name).write_bytes(path.read_bytes())
    (data / "packages.yaml").write_text(f"require_signature: {str(required).lower()}\n")
    return PackagePolicy.read(data)


def test_key_is_private_and_is_made_once(tmp_path: Path) -> None:
    public, key_id = new_key(tmp_path / "acme.key")
    assert public == tmp_path / "acme.pub"
    assert len(key_id) == 64
    assert (tmp_path / "acme.key").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "acme.key").read_bytes()
    with pytest.raises(KeyUnusable, match="is there already"):
        new_key(tmp_path / "acme.key")
    assert (tmp_path / "acme.key").read_bytes() == before
    with pytest.raises(KeyUnusable, match="name it"):
        new_key(tmp_path / "x.pub")


def test_signature_of_a_trusted_key_counts_and_names_it(tmp_path: Path) -> None:
    public, key_id = new_key(tmp_path / "acme.key")
    plugin = PluginFolder.read(write_plugin(tmp_path / "weather"))
    unsigned = pack(plugin, tmp_path)
    policy = trusting(tmp_path / "data", public)
    with pytest.raises(SignatureRefused, match=r"signed by nobody, and packages.yaml demands"):
        policy.signer(unsigned)
    signed = pack(plugin, tmp_path, key=tmp_path / "acme.key")
    assert signed.signature is not None
    assert signed.signature.key_id == key_id
    assert policy.signer(signed) == "acme"


def test_signing_later_is_the_same_as_signing_while_packing(tmp_path: Path) -> None:
    new_key(tmp_path / "acme.key")
    new_key(tmp_path / "other.key")
    plugin = PluginFolder.read(write_plugin(tmp_path / "weather"))
    at_once = pack(plugin, tmp_path, key=tmp_path / "acme.key").path.read_bytes()
    later = sign_package(pack(plugin, tmp_path), tmp_path / "acme.key")
    assert later.path.read_bytes() == at_once
    other = sign_package(later, tmp_path / "other.key")
    assert other.path.read_bytes() != at_once
    assert sign_package(other, tmp_path / "acme.key").path.read_bytes() == at_once


def test_signature_of_an_unknown_key_counts_as_none(tmp_path: Path) -> None:
    new_key(tmp_path / "stranger.key")
    public, _ = new_key(tmp_path / "acme.key")
    plugin = PluginFolder.read(write_plugin(tmp_path / "weather"))
    package = pack(plugin, tmp_path, key=tmp_path / "stranger.key")
    with pytest.raises(SignatureRefused, match="signed by an unknown key"):
        trusting(tmp_path / "data", public).signer(package)
    assert trusting(tmp_path / "data", public, required=False).signer(package) == ""


def test_signature_is_of_one_content_alone_even_where_none_is_needed(tmp_path: Path) -> None:
    public, _ = new_key(tmp_path / "acme.key")
    plugin = PluginFolder.read(write_plugin(tmp_path / "weather"))
    signed = pack(plugin, tmp_path, key=tmp_path / "acme.key")
    assert signed.signature is not None
    other = [*ENTRIES, Raw("evil", b"x")]
    moved = Raw(".package/signature", signed.signature.text())
    path = written(tmp_path, archive([contents_of(other), moved, *other]))
    policy = trusting(tmp_path / "data", public, required=False)
    with pytest.raises(SignatureRefused, match="acme is not of this package"):
        policy.signer(Package.open(path))


def test_signature_for_another_purpose_does_not_count(tmp_path: Path) -> None:
    public, _ = new_key(tmp_path / "acme.key")
    contents = contents_of(ENTRIES)
    honest = sign(contents.content, tmp_path / "acme.key")
    key = load_pem_private_key((tmp_path / "acme.key").read_bytes(), password=None)
    assert isinstance(key, Ed25519PrivateKey)
    bare = honest.text().replace(honest.text().splitlines()[2], _base64(key.sign(contents.content)))
    entries = [contents, Raw(".package/signature", bare), *ENTRIES]
    path = written(tmp_path, archive(entries))
    with pytest.raises(SignatureRefused, match="is not of this package"):
        trusting(tmp_path / "data", public).signer(Package.open(path))


def _base64(value: bytes) -> bytes:
    import base64

    return base64.b64encode(value)


def test_policy_that_cannot_be_read_lets_nothing_in(tmp_path: Path) -> None:
    for text in (
        "require_signature: yes please",
        "require_signatures: true",
        "[",
        "trusted_keys: 7",
    ):
        (tmp_path / "packages.yaml").write_text(text)
        with pytest.raises(PolicyInvalid, match=r"packages\.yaml"):
            PackagePolicy.read(tmp_path)


def test_keys_may_be_anywhere(tmp_path: Path) -> None:
    (tmp_path / "packages.yaml").write_text(f"trusted_keys: {tmp_path / 'elsewhere'}\n")
    assert PackagePolicy.read(tmp_path).trusted_keys == tmp_path / "elsewhere"
    (tmp_path / "packages.yaml").write_text("trusted_keys: keys\n")
    assert PackagePolicy.read(tmp_path).trusted_keys == tmp_path / "keys"


def test_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    rsa = generate_private_key(public_exponent=65537, key_size=2048)
    pem = rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "rsa.key").write_bytes(pem)
    with pytest.raises(KeyUnusable, match="no Ed25519 key"):
        sign(b"x", tmp_path / "rsa.key")
    (tmp_path / "no.key").write_text("hello")
    with pytest.raises(KeyUnusable, match="no private key"):
        sign(b"x", tmp_path / "no.key")
    with pytest.raises(KeyUnusable, match="cannot be read"):
        sign(b"x", tmp_path / "absent.key")
    keys = tmp_path / "trusted-keys"
    keys.mkdir()
    public = rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (keys / "rsa.pub").write_bytes(public)
    package = pack(PluginFolder.read(write_plugin(tmp_path / "weather")), tmp_path)
    with pytest.raises(KeyUnusable, match="no Ed25519 key"):
        PackagePolicy.read(tmp_path).signer(package)


def test_installation_of_what_is_not_signed_is_refused_where_that_is_needed(tmp_path: Path) -> None:
    public, _ = new_key(tmp_path / "acme.key")
    data = tmp_path / "data"
    trusting(data, public)
    folder = write_plugin(tmp_path / "weather")
    package = pack(PluginFolder.read(folder), tmp_path)
    for source in (package.path, folder):
        with pytest.raises(SignatureRefused):
            an_installer(data).install(str(source))
    sign_package(package, tmp_path / "acme.key")
    outcome = an_installer(data).install(str(package.path))
    assert outcome.signed_by == "acme"
    [installed] = an_installer(data).folders.all()
    assert installed.record is not None
    assert installed.record.signed_by == "acme"
