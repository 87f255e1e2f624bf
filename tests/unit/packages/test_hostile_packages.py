"""Every hostile package is refused whole: nothing of it is written, and what is there stays."""

import stat
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from host_service.limits import PackageLimits
from host_service.packages.errors import ArchiveRefused, PackageError
from host_service.packages.package import Package
from tests.unit.packages.folders import an_installer
from tests.unit.packages.raw_archives import (
    ENTRIES,
    LINK,
    MANIFEST,
    PROGRAM,
    REGULAR,
    Raw,
    archive,
    changed,
    contents_of,
    package,
    written,
)

LIMITS = PackageLimits(
    package_bytes=100_000,
    unpacked_bytes=300_000,
    entries=50,
    expansion_from_bytes=10_000,
    path_bytes=200,
    name_bytes=100,
    path_depth=10,
    link_bytes=50,
)
ZEROS = b"\0" * 200_000
CONTENTS = contents_of(ENTRIES)
RUN = ENTRIES[1]


def link(name: str, target: str) -> Raw:
    return Raw(name, target.encode(), LINK)


def of_another_tool() -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for entry in (CONTENTS, *ENTRIES):
            made.writestr(str(entry.name), entry.content)
    return file.getvalue()


def zip64_locator() -> bytes:
    whole = package()
    locator = b"PK\x06\x07" + struct.pack("<LQL", 0, 0, 1)
    return whole[:-22] + locator + whole[-22:]


def overlapping() -> bytes:
    """Two entries of the directory that share one place, as the densest of all size bombs do."""
    entries = [CONTENTS, *ENTRIES]
    whole = archive([*entries, replace(RUN, name="run2")])
    return whole.replace(b"run2", b"run3", 1)


def same_place_twice() -> bytes:
    entries = [*ENTRIES, replace(RUN, name="ruN", central={"offset": 0})]
    return archive([contents_of(entries), *entries])


def half_a_contents_list() -> bytes:
    entries = [*ENTRIES, Raw("extra", b"x", listed=False)]
    return archive([contents_of(entries), *entries])


def backwards(contents: bytes) -> bytes:
    *head, one, other, _ = contents.split(b"\n")
    return b"\n".join([*head, other, one, b""])


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    # Paths.
    "leaves its folder": (lambda: package(Raw("../evil", b"x")), r"'\.\./evil' leaves its folder"),
    "leaves it further in": (lambda: package(Raw("a/../../evil", b"x")), "leaves its folder"),
    "ends in two dots": (lambda: package(Raw("a/..", b"x")), "leaves its folder"),
    "is absolute": (lambda: package(Raw("/etc/cron.d/evil", b"x")), "is an absolute path"),
    "is absolute on Windows": (lambda: package(Raw("C:/evil", b"x")), "path of another system"),
    "has a backslash": (lambda: package(Raw("..\\evil", b"x")), "path of another system"),
    "has an empty name": (lambda: package(Raw("a//b", b"x")), "empty name"),
    "has a dot": (lambda: package(Raw("./a", b"x")), "empty name"),
    "is a folder": (lambda: package(Raw("a/", b"")), "empty name"),
    "has a line break": (lambda: package(Raw("a\nb", b"x", listed=False)), "control character"),
    "has a zero": (lambda: package(Raw("a\0b", b"x")), "control character"),
    "has an escape": (lambda: package(Raw("a\x1b[2Jb", b"x")), "control character"),
    "is not UTF-8": (lambda: package(Raw(b"\xff\xfe", b"x", listed=False)), "not UTF-8"),
    "has no name": (lambda: package(Raw("", b"x", listed=False)), "empty name"),
    "is too long": (lambda: package(Raw("a/" * 5 + "b" * 191, b"x")), "more than 200 bytes"),
    "has a long name": (lambda: package(Raw("b" * 101, b"x")), "name of more than 100 bytes"),
    "is too deep": (lambda: package(Raw("a/" * 10 + "b", b"x")), "nested deeper"),
    # One place for two.
    "comes twice": (lambda: package(RUN), "would be in one place|not sorted"),
    "comes twice by case": (lambda: package(Raw("RUN", b"x")), "'RUN' and 'run' would be in one"),
    "comes twice by Unicode form": (
        lambda: package(Raw("caf\u00e9", b"x"), Raw("cafe\u0301", b"y")),
        "would be in one place",
    ),
    "comes twice by sharp s": (
        lambda: package(Raw("stra\u00dfe", b"x"), Raw("STRASSE", b"y")),
        "would be in one place",
    ),
    "is file and folder": (
        lambda: package(Raw("lib", b"x"), Raw("lib/a", b"y")),
        "would be in one place",
    ),
    "is folder and file": (
        lambda: package(Raw("lib/a", b"x"), Raw("lib", b"y")),
        "would be in one place",
    ),
    "is in two folders that are one": (
        lambda: package(Raw("lib/a", b"x"), Raw("LIB/b", b"y")),
        "would be in one place",
    ),
    # Links and files of other kinds.
    "is a link out": (lambda: package(link("l", "../../etc/passwd")), "is a link to"),
    "is a link out and to what is in": (lambda: package(link("l", "../run")), "is a link to"),
    "is an absolute link": (lambda: package(link("l", "/etc/passwd")), "is a link to"),
    "is a link to nothing": (lambda: package(link("l", "nowhere")), "is a link to"),
    "is an empty link": (lambda: package(link("l", "")), "is a link to"),
    "is a link to itself": (lambda: package(link("l", "l")), "is a link to"),
    "is a link to its own folder": (lambda: package(Raw("a/b"), link("a/l", "../a")), "in itself"),
    "is a link by a link": (
        lambda: package(Raw("a/b/c"), link("a/up", "b"), link("l", "a/up/../../..")),
        "is a link to",
    ),
    "is a link out by a link that stays in": (
        lambda: package(Raw("a/g"), Raw("b/f"), link("a/up", "../b"), link("l", "a/up/../../run")),
        r"'l' is a link to 'a/up",
    ),
    "is a link to a link": (lambda: package(link("l", "run"), link("m", "l")), "is a link to"),
    "is behind a link": (
        lambda: package(Raw("a/b"), link("l", "a"), Raw("l/evil", b"x")),
        "would be in one place|through the link",
    ),
    "is a long link": (lambda: package(link("l", "x" * 51)), "link of more than 50 bytes"),
    "is a link to no text": (lambda: package(Raw("l", b"\xff", LINK)), "not UTF-8"),
    "is a character device": (
        lambda: package(Raw("d", b"", stat.S_IFCHR | 0o644)),
        "no file of mode 644 or 755",
    ),
    "is a block device": (lambda: package(Raw("d", b"", stat.S_IFBLK | 0o644)), "no file of mode"),
    "is a pipe": (lambda: package(Raw("d", b"", stat.S_IFIFO | 0o644)), "no file of mode"),
    "is a socket": (lambda: package(Raw("d", b"", stat.S_IFSOCK | 0o644)), "no file of mode"),
    "is run as its owner": (
        lambda: package(Raw("d", b"", stat.S_IFREG | 0o4755)),
        "no file of mode",
    ),
    "is everybody's": (lambda: package(Raw("d", b"", stat.S_IFREG | 0o666)), "no file of mode"),
    "is not from Unix": (
        lambda: changed(RUN, central={"made_by": 20}),
        "no file of mode",
    ),
    # Sizes.
    "is a bomb by ratio": (
        lambda: package(Raw("bomb", ZEROS, deflate=True)),
        r"would become 200000 bytes out of \d+; the limit is 200 times",
    ),
    "is a bomb by sum": (
        lambda: package(*(Raw(f"b{n}", b"ab" * 4_999, deflate=True) for n in range(31))),
        "unpack to more than 300000 bytes",
    ),
    "is a bomb that claims little": (
        lambda: package(
            Raw("bomb", ZEROS, deflate=True, local={"size_bytes": 9}, central={"size_bytes": 9})
        ),
        "has more than the 9 bytes it claims",
    ),
    "claims more than there is": (
        lambda: changed(RUN, deflate=True, local={"size_bytes": 99}, central={"size_bytes": 99}),
        "has 10 bytes and claims 99",
    ),
    "has too many entries": (
        lambda: package(*(Raw(f"f{n:03}", b"") for n in range(60))),
        "has 63 entries; the limit is 50",
    ),
    "is too large": (
        lambda: package(Raw("large", bytes(range(256)) * 400)),
        "the limit is 100000",
    ),
    "is two entries in one place": (same_place_twice, "is at 0 where"),
    "has a directory without end": (
        lambda: changed(RUN, central={"comment": b"x" * 60_000}),
        r"directory of 60\d+ bytes for 3 entries",
    ),
    # The format's other readings.
    "is encrypted": (lambda: changed(RUN, central={"flags": 1}, local={"flags": 1}), "encrypted"),
    "is strongly encrypted": (lambda: changed(RUN, central={"flags": 0x41}), "is encrypted"),
    "has a data descriptor": (lambda: changed(RUN, central={"flags": 8}), "fields that no package"),
    "has an extra field": (lambda: changed(RUN, extra=b"\x01\0\x02\0ab"), "fields that no package"),
    "has a comment of its own": (
        lambda: changed(RUN, central={"comment": b"hi"}),
        "fields that no package",
    ),
    "is on another disk": (lambda: changed(RUN, central={"disk": 1}), "fields that no package"),
    "has another time": (lambda: changed(RUN, central={"time": 1}), "has a time"),
    "has another name before it": (
        lambda: changed(RUN, local={"name": b"evl"}),
        "local header that says something else",
    ),
    "has another size before it": (
        lambda: changed(RUN, local={"size_bytes": 1}),
        "local header that says something else",
    ),
    "is packed some other way": (lambda: changed(RUN, central={"method": 14}), "the method 14"),
    "is stored in two sizes": (lambda: changed(RUN, central={"size_bytes": 5}), "two sizes"),
    "says UTF-8 without need": (lambda: changed(RUN, central={"flags": 0x800}), "truly how"),
    "is a ZIP64 archive": (zip64_locator, "ZIP64"),
    "has a ZIP64 count": (lambda: package(count=0xFFFF, here=0xFFFF), "ZIP64"),
    "has a ZIP64 offset": (lambda: package(offset=0xFFFFFFFF), "ZIP64"),
    "has a ZIP64 entry": (lambda: changed(RUN, central={"size_bytes": 0xFFFFFFFF}), "ZIP64"),
    "is on two disks": (lambda: package(disk=1), "several disks"),
    "has a comment": (lambda: package(comment=b"PK\x05\x06" + b"\0" * 18), "comment or other|"),
    "has bytes behind it": (lambda: package() + b"\n", "bytes behind it"),
    "has bytes before it": (lambda: b"#!/bin/sh\n" + package(), "bytes before it"),
    "has bytes in between": (
        lambda: archive([CONTENTS, *(replace(e, central={"offset": 999}) for e in ENTRIES)]),
        "is at 999 where",
    ),
    "has a hidden entry": (
        lambda: package(here=2, count=2),
        "belong to no entry|directory of",
    ),
    "overlaps": (overlapping, "local header that says something else"),
    "is made by another tool": (of_another_tool, "no file of mode|time, or other|fields that no"),
    "is no archive": (lambda: b"hello" * 20, "is no archive"),
    "is empty": (lambda: b"", "too short"),
    # Damage.
    "has a wrong CRC": (
        lambda: changed(RUN, central={"crc": 1}, local={"crc": 1}),
        "damaged: its CRC-32",
    ),
    "is no deflated data": (
        lambda: changed(RUN, deflate=True, packed=b"\xff" * 10),
        "'run' is damaged",
    ),
    "lacks its end": (lambda: changed(RUN, deflate=True, packed=b"\x00"), "'run' is damaged"),
    "has more behind its end": (
        lambda: changed(RUN, deflate=True, packed=replace(RUN, deflate=True).packed_content + b"x"),
        "bytes behind its end",
    ),
    # What it says of itself.
    "has another digest": (lambda: changed(RUN, digest_of=b"other"), "not have the digest"),
    "has what is not listed": (half_a_contents_list, "not in its list of contents"),
    "lists what is not there": (
        lambda: archive([contents_of([*ENTRIES, Raw("ghost")]), *ENTRIES]),
        "'ghost' is either not in it",
    ),
    "has another kind than listed": (
        lambda: archive([CONTENTS, ENTRIES[0], replace(RUN, mode=REGULAR)]),
        "not the kind of file",
    ),
    "has a list in another order": (
        lambda: archive([replace(CONTENTS, content=backwards(CONTENTS.content)), *ENTRIES]),
        "is not sorted",
    ),
    "has a list with a line too many": (
        lambda: archive([replace(CONTENTS, content=CONTENTS.content + b"and more"), *ENTRIES]),
        "is not sorted, or has a line too many",
    ),
    "has no list": (lambda: archive(ENTRIES), "no list of contents"),
    "has its list last": (lambda: archive([*ENTRIES, CONTENTS]), "does not come first"),
    "has two lists": (lambda: archive([CONTENTS, CONTENTS, *ENTRIES]), "no list of contents"),
    "has something beside its list": (
        lambda: package(Raw(".package/install.json", b"{}")),
        "no list of contents",
    ),
    "has something beside its list, in capitals": (
        lambda: package(Raw(".PACKAGE/install.json", b"{}")),
        "no list of contents",
    ),
    "has a list that is a program": (
        lambda: archive([replace(CONTENTS, mode=PROGRAM), *ENTRIES]),
        "must be a file of at most",
    ),
    "has no manifest": (lambda: archive([contents_of([RUN]), RUN]), "no manifest.yaml"),
    "is another plugin by its list": (
        lambda: archive([contents_of(ENTRIES, plugin="acme/other"), *ENTRIES]),
        "whose package is called other-1.0.0.rmpkg",
    ),
    "is another version by its list": (
        lambda: archive([contents_of(ENTRIES, version="2.0.0"), *ENTRIES]),
        "whose package is called weather-2.0.0.rmpkg",
    ),
    "has a version that is a path": (
        lambda: archive([contents_of(ENTRIES, version="../1"), *ENTRIES]),
        "version must match",
    ),
    "has an id that is a path": (
        lambda: archive([contents_of(ENTRIES, plugin="../weather"), *ENTRIES]),
        "does not begin as one does",
    ),
    "has another author in its manifest": (
        lambda: changed(ENTRIES[0], content=MANIFEST.replace(b"acme", b"evil")),
        "its manifest says evil/weather 1.0.0",
    ),
    "has a broken manifest": (
        lambda: changed(ENTRIES[0], content=b"kind: Plugin\n"),
        "manifest.yaml",
    ),
    "has a signature that is none": (
        lambda: archive([CONTENTS, Raw(".package/signature", b"hello"), *ENTRIES]),
        "signature is not one",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_package_is_refused_whole(name: str, tmp_path: Path) -> None:
    make, told = HOSTILE[name]
    path = written(tmp_path, make())
    data = tmp_path / "data"
    installer = an_installer(data, limits=LIMITS)
    with pytest.raises(PackageError, match=told):
        installer.install(str(path))
    left = sorted(each.relative_to(data).as_posix() for each in data.rglob("*"))
    assert left == ["plugin-versions", "plugin-versions/.lock", "plugins"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", path.name]


def test_honest_package_of_the_same_making_is_taken(tmp_path: Path) -> None:
    more = [
        Raw("lib/été/a.txt", b"x" * 9_000, deflate=True),
        link("lib/latest", "été"),
        link("up", "lib/été/a.txt"),
        link("lib/été/run", "../../run"),
        link("links/alone/run", "../../run"),
    ]
    path = written(tmp_path, package(*more))
    opened = Package.open(path, limits=LIMITS)
    opened.unpack(tmp_path / "out")
    assert (tmp_path / "out" / "up").read_bytes() == b"x" * 9_000
    assert (tmp_path / "out/lib/latest/run").read_bytes() == b"#!/bin/sh\n"
    assert stat.S_IMODE((tmp_path / "out/run").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "out/up").stat().st_mode) == 0o644


def test_every_cut_and_every_flipped_byte_of_a_package_is_refused(tmp_path: Path) -> None:
    # Stored: the last bits of what is deflated may mean nothing.
    whole = package(Raw("lib/a", b"hello" * 9))
    for length in range(len(whole)):
        with pytest.raises(ArchiveRefused):
            Package.open(written(tmp_path, whole[:length]), limits=LIMITS)
    for place in range(len(whole)):
        flipped = whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :]
        with pytest.raises(ArchiveRefused):
            Package.open(written(tmp_path, flipped), limits=LIMITS)


def test_package_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, package())
    opened = Package.open(path, limits=LIMITS)
    written(tmp_path, changed(RUN, content=b"#!/bin/ls\n"))
    with pytest.raises(ArchiveRefused, match="changed while it was read"):
        opened.unpack(tmp_path / "out")
