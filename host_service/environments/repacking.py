"""Wheels made again from what the host itself has installed.

The SDK needs grpcio, protobuf and a few more, and so does the host. An installed distribution lists
its files and their tags (the binary distribution format, "RECORD" and "WHEEL"), so that its wheel
can be put together again: the first plugin's environment can then be built without a network.
"""

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_EXTRA = re.compile(r";.*\bextra\b")
# What an installer adds, or makes again.
_INSTALLERS = frozenset({"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"})
# The earliest time that a zip file can tell: the same files make the same wheel.
_TIME = (1980, 1, 1, 0, 0, 0)


def needed_distributions(name: str) -> list[Distribution]:
    """What a distribution needs to run, and what that needs, as far as it is installed here."""
    found: dict[str, Distribution] = {}
    waiting = list(_needs(name))
    while waiting:
        wanted = waiting.pop()
        if wanted not in found:
            try:
                found[wanted] = distribution(wanted)
            except PackageNotFoundError:
                # For another system or Python.
                continue
            waiting.extend(_needs(wanted))
    return [found[each] for each in sorted(found)]


def wheel_name(installed: Distribution) -> str:
    """The name of the wheel of an installed distribution.

    Empty when it cannot be made: the distribution is editable, or has files beside its packages.
    """
    information, _ = _contents(installed)
    tags = _tags(installed)
    if not information or not tags:
        return ""
    return f"{information.removesuffix('.dist-info')}-{tags}.whl"


def repack(installed: Distribution, wheel: Path) -> None:
    """Makes the wheel of an installed distribution, under the name that `wheel_name` gives."""
    information, names = _contents(installed)
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for name, recorded in names:
            path = Path(str(installed.locate_file(name)))
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = (path.stat().st_mode & 0o777) << 16
            archive.writestr(entry, path.read_bytes())
            rows.writerow((name, *recorded))
        rows.writerow((f"{information}/RECORD", "", ""))
        entry = zipfile.ZipInfo(f"{information}/RECORD", _TIME)
        entry.external_attr = 0o644 << 16
        archive.writestr(entry, record.getvalue())


def _needs(name: str) -> Iterator[str]:
    try:
        requirements: Iterable[str] = distribution(name).requires or ()
    except PackageNotFoundError:
        return
    for text in requirements:
        match = _NAME.match(text)
        if match and not _EXTRA.search(text):
            yield re.sub(r"[-_.]+", "-", match[0]).lower()


def _contents(installed: Distribution) -> tuple[str, list[tuple[str, tuple[str, str]]]]:
    """The name of the `.dist-info`, and each file with its hash and size; empty: not to be made."""
    information, names = "", []
    for name, *recorded in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        path = PurePosixPath(name)
        top = path.parts[0]
        if top.endswith(".dist-info"):
            information = top
            if path.name in _INSTALLERS:
                if path.name == "direct_url.json":
                    return "", []
                continue
        if top == "..":
            # A command: made again from its entry point. Other things have no place of their own.
            if "bin" not in path.parts:
                return "", []
            continue
        if path.suffix != ".pyc":
            names.append((name, (recorded[0], recorded[1])))
    return information, sorted(names)


def _tags(installed: Distribution) -> str:
    """The part of a wheel's name that says what it runs on, such as `py3-none-any`."""
    text = installed.read_text("WHEEL") or ""
    triples = [
        line.partition(":")[2].strip().split("-")
        for line in text.splitlines()
        if line.startswith("Tag:")
    ]
    if not triples or any(len(triple) != 3 for triple in triples):
        return ""
    return "-".join(".".join(dict.fromkeys(part)) for part in zip(*triples, strict=True))
