"""A package that was checked as a whole, and what can be done with it then."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host_service.limits import PackageLimits
from host_service.packages.contents import Contents, digest
from host_service.packages.entry_names import RESERVED_FOLDER, check_links, check_names, fold
from host_service.packages.errors import ArchiveRefused
from host_service.packages.signing import Signature
from host_service.packages.zip_format import Entry
from host_service.packages.zip_reader import ZipReader

SUFFIX = ".rmpkg"
CONTENTS_NAME = f"{RESERVED_FOLDER}/contents"
SIGNATURE_NAME = f"{RESERVED_FOLDER}/signature"

_LONGEST_SIGNATURE_BYTES = 1024


class Package:
    """One package's file. Made by `open`, which checks everything that can be without unpacking.

    Attributes:
        path: The file.
        sha256: The file's digest, as 64 hexadecimal digits.
        contents: What the package says of itself.
        contents_text: The list as it stands in the package: what a signature is over.
        signature: The signature in it, unchecked; None: it has none.
    """

    def __init__(
        self,
        path: Path,
        *,
        sha256: str,
        contents_text: bytes,
        signature: Signature | None,
        limits: PackageLimits,
    ) -> None:
        self.path = path
        self.sha256 = sha256
        self.contents_text = contents_text
        self.contents = Contents.read(contents_text)
        self.signature = signature
        self._limits = limits

    @classmethod
    def open(cls, path: Path, *, limits: PackageLimits | None = None) -> "Package":
        """Checks a package: its structure, its paths, its sizes, and every byte by its digest.

        Args:
            path: The file; if its name ends in `.rmpkg`, it must be the one that follows from the
                plugin's name and version.
            limits: How large it may be.

        Raises:
            ArchiveRefused: It breaks a rule.
            SignatureRefused: What stands for a signature in it is none.
        """
        try:
            return cls._open(path, limits or PackageLimits())
        except OSError as error:
            raise ArchiveRefused(f"{path} cannot be read: {error.strerror}") from error

    @classmethod
    def _open(cls, path: Path, limits: PackageLimits) -> "Package":
        with _told_of(path), ZipReader(path, limits=limits) as reader:
            text, signature = _read_own(reader, limits)
            package = cls(
                path,
                sha256=file_digest(path),
                contents_text=text,
                signature=signature,
                limits=limits,
            )
            package._check_files(reader)
            name = package.contents.file_name
            if path.suffix == SUFFIX and path.name != name:
                raise ArchiveRefused(
                    f"it is {package.contents.plugin_id} {package.contents.version}, "
                    f"whose package is called {name}"
                )
        return package

    def unpack(self, folder: Path) -> None:
        """Writes the package's files into a new folder, and checks each byte again on its way.

        Raises:
            ArchiveRefused: The file has changed since it was opened.
            OSError: The folder cannot be written.
        """
        folder.mkdir(mode=0o755)
        listed = {each.name: each for each in self.contents.files}
        links: list[tuple[Path, str]] = []
        with _told_of(self.path), ZipReader(self.path, limits=self._limits) as reader:
            if {entry.name for entry in _plugins_own(reader)} != listed.keys():
                raise ArchiveRefused("it has changed while it was read")
            for entry in _plugins_own(reader):
                place = folder / entry.name
                place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                if entry.kind == "link":
                    links.append((place, _require(reader.read(entry), listed[entry.name].sha256)))
                else:
                    _write(place, reader, entry, listed[entry.name].sha256)
        # Last of all, so that nothing could be written through one.
        for place, target in links:
            place.symlink_to(target)
        own = folder / RESERVED_FOLDER
        own.mkdir(mode=0o755)
        (own / "contents").write_bytes(self.contents_text)
        if self.signature is not None:
            (own / "signature").write_bytes(self.signature.text())

    def _check_files(self, reader: ZipReader) -> None:
        entries = _plugins_own(reader)
        check_names((entry.name for entry in entries), limits=self._limits)
        listed = {each.name: each for each in self.contents.files}
        extra = {entry.name for entry in entries} ^ listed.keys()
        if extra:
            raise ArchiveRefused(
                f"{min(extra)!r} is either not in it or not in its list of contents"
            )
        targets: dict[str, str] = {}
        for entry in entries:
            if entry.kind != listed[entry.name].kind:
                raise ArchiveRefused(f"{entry.name!r} is not the kind of file that the list says")
            found = hashlib.sha256()
            for chunk in reader.chunks(entry):
                found.update(chunk)
            if found.hexdigest() != listed[entry.name].sha256:
                raise ArchiveRefused(f"{entry.name!r} does not have the digest that the list says")
            if entry.kind == "link":
                targets[entry.name] = _link_target(reader, entry, self._limits)
        check_links(targets, listed)
        if "manifest.yaml" not in listed or listed["manifest.yaml"].kind != "file":
            raise ArchiveRefused("it has no manifest.yaml")


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Puts the file's name before what is wrong with it."""
    try:
        yield
    except ArchiveRefused as error:
        raise ArchiveRefused(f"{path.name} is refused: {error.problem}", error.advice) from error


def _read_own(reader: ZipReader, limits: PackageLimits) -> tuple[bytes, Signature | None]:
    """Reads what the package keeps about itself: it comes first, in this order, each once."""
    own = [entry for entry in reader.entries if _is_own(entry.name)]
    names = [entry.name for entry in own]
    if names not in ([CONTENTS_NAME], [CONTENTS_NAME, SIGNATURE_NAME]):
        raise ArchiveRefused(
            "it has no list of contents where one should be", "make packages with 'runmesh pack'"
        )
    if [entry.name for entry in reader.entries[: len(own)]] != names:
        raise ArchiveRefused("its list of contents does not come first")
    sizes = (limits.contents_bytes, _LONGEST_SIGNATURE_BYTES)
    for entry, longest in zip(own, sizes, strict=False):
        if entry.size_bytes > longest or entry.kind != "file":
            raise ArchiveRefused(f"{entry.name!r} must be a file of at most {longest} bytes")
    signature = Signature.read(reader.read(own[1])) if len(own) > 1 else None
    return reader.read(own[0]), signature


def _plugins_own(reader: ZipReader) -> list[Entry]:
    return [entry for entry in reader.entries if not _is_own(entry.name)]


def _is_own(name: str) -> bool:
    return fold(name.partition("/")[0]) == RESERVED_FOLDER


def _link_target(reader: ZipReader, entry: Entry, limits: PackageLimits) -> str:
    if entry.size_bytes > limits.link_bytes:
        raise ArchiveRefused(f"{entry.name!r} is a link of more than {limits.link_bytes} bytes")
    try:
        return reader.read(entry).decode()
    except UnicodeDecodeError as error:
        raise ArchiveRefused(f"{entry.name!r} is a link to what is not UTF-8") from error


def _require(content: bytes, sha256: str) -> str:
    if digest(content) != sha256:
        raise ArchiveRefused("it has changed while it was read")
    return content.decode()


def _write(place: Path, reader: ZipReader, entry: Entry, sha256: str) -> None:
    mode = 0o755 if entry.kind == "program" else 0o644
    # No link and no file is ever there: the folder is new, and the paths are each one place.
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    found = hashlib.sha256()
    with os.fdopen(os.open(place, flags, mode), "wb") as file:
        for chunk in reader.chunks(entry):
            found.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    place.chmod(mode)
    if found.hexdigest() != sha256:
        raise ArchiveRefused("it has changed while it was read")
