"""A package's list of contents: which plugin it is, and the digest of each of its files.

::

    runmesh package 1
    plugin acme/weather
    version 0.1.0

    0f1e...  file     manifest.yaml
    9a2b...  program  bin/weather
    44c0...  link     latest

A signature is one over this text, and so over every byte, every path and every kind.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from host_service.packages.errors import ArchiveRefused

_HEAD = re.compile(
    r"runmesh package 1\nplugin (?P<plugin>[^\n ]+)\nversion (?P<version>[^\n]+)\n\n"
)
_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<kind>file|program|link) +(?P<name>\S[^\n]*)")
_ID_PART = r"[a-z0-9][a-z0-9._-]{0,63}"
_PLUGIN_ID = re.compile(rf"{_ID_PART}/{_ID_PART}")
#: A version has its place in the name of a file.
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of a package.

    Attributes:
        name: Its path.
        kind: `file`, `program` or `link`.
        sha256: Of its content, as 64 hexadecimal digits.
    """

    name: str
    kind: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What a package says of itself.

    Attributes:
        plugin_id: `author/name`.
        version: The plugin's version.
        files: Each of its files, by path.
    """

    plugin_id: str
    version: str
    files: tuple[Listed, ...]

    @classmethod
    def of(
        cls, plugin_id: str, version: str, files: Iterable[tuple[str, str, bytes]]
    ) -> "Contents":
        """Makes the list for files: name, kind and content of each."""
        listed = [Listed(name, kind, digest(content)) for name, kind, content in files]
        return cls(plugin_id, version, tuple(sorted(listed, key=lambda each: each.name.encode())))

    @classmethod
    def read(cls, text: bytes) -> "Contents":
        """Reads a list.

        Raises:
            ArchiveRefused: It is not written exactly as it should be.
        """
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            raise ArchiveRefused("its list of contents is not UTF-8") from error
        head = _HEAD.match(decoded)
        if head is None or not _PLUGIN_ID.fullmatch(head["plugin"]):
            raise ArchiveRefused("its list of contents does not begin as one does")
        if not VERSION.fullmatch(head["version"]):
            raise ArchiveRefused(f"its version must match {VERSION.pattern}")
        files = [_read_line(line) for line in decoded[head.end() :].split("\n")[:-1]]
        contents = cls(head["plugin"], head["version"], tuple(files))
        if contents.text() != text:
            raise ArchiveRefused("its list of contents is not sorted, or has a line too many")
        return contents

    @property
    def file_name(self) -> str:
        """How the package's file is called."""
        return f"{self.plugin_id.partition('/')[2]}-{self.version}.rmpkg"

    def text(self) -> bytes:
        """The list as it stands in the package."""
        head = f"runmesh package 1\nplugin {self.plugin_id}\nversion {self.version}\n\n"
        by_name = sorted(self.files, key=lambda each: each.name.encode())
        lines = [f"{each.sha256}  {each.kind:<7}  {each.name}\n" for each in by_name]
        return (head + "".join(lines)).encode()


def digest(content: bytes) -> str:
    """The SHA-256 of some bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _read_line(line: str) -> Listed:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ArchiveRefused(f"its list of contents has the line {line[:80]!r}")
    return Listed(match["name"], match["kind"], match["digest"])
