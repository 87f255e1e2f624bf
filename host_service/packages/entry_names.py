"""Which paths a package may have: those that mean one place in its folder, on every file system."""

import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from host_service.limits import PackageLimits
from host_service.packages.errors import ArchiveRefused

#: What packages keep about themselves; no file of a plugin may be there.
RESERVED_FOLDER = ".package"


def check_names(names: Iterable[str], *, limits: PackageLimits) -> None:
    """Checks every path, and that no two are one place where case or Unicode form do not count.

    Raises:
        ArchiveRefused: One breaks a rule; the text names both.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        problem = _problem(name, limits)
        if problem:
            raise ArchiveRefused(f"{name[:200]!r} {problem}")
        folded = [fold(part) for part in name.split("/")]
        paths = ["/".join(folded[: depth + 1]) for depth in range(len(folded))]
        parents = name.split("/")[:-1]
        if paths[-1] in files or paths[-1] in folders:
            other = files.get(paths[-1]) or folders[paths[-1]]
            raise ArchiveRefused(f"{name!r} and {other!r} would be in one place")
        files[paths[-1]] = name
        for depth, path in enumerate(paths[:-1]):
            written = "/".join(parents[: depth + 1])
            # Two ways to write one folder's name would be two folders here and one elsewhere.
            if path in files or folders.setdefault(path, written) != written:
                other = files.get(path) or folders[path]
                raise ArchiveRefused(f"{name!r} and {other!r} would be in one place")


def check_links(targets: Mapping[str, str], names: Iterable[str]) -> None:
    """Checks that every link leads to a file or folder of the package, and not by another link.

    Args:
        targets: What each link says, by its path.
        names: The paths of everything in the package, links included.

    Raises:
        ArchiveRefused: One leads elsewhere.
    """
    names = set(names)
    files = names - targets.keys()
    # A folder may have nothing in it but links: npm makes such ones.
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    folders -= targets.keys()
    reachable = (files | folders) - {"."}
    for name, target in targets.items():
        place = _resolve(name, target, folders)
        if place not in reachable:
            raise ArchiveRefused(
                f"{name!r} is a link to {target[:200]!r}, which is not a file or folder of the "
                "package"
            )
        if place in {str(parent) for parent in PurePosixPath(name).parents}:
            raise ArchiveRefused(f"{name!r} is a link to a folder that it is in itself")
    for name in names:
        for parent in PurePosixPath(name).parents:
            if str(parent) in targets:
                raise ArchiveRefused(f"{name!r} would be written through the link {str(parent)!r}")


def _resolve(name: str, target: str, folders: set[str]) -> str | None:
    """Follows a link's text from folder to folder; None where it leaves or meets no folder."""
    if not target or target.startswith("/") or "\0" in target:
        return None
    place = list(PurePosixPath(name).parent.parts)
    for step in target.split("/"):
        if place and "/".join(place) not in folders:
            # Whatever this is, a link included, there is no way on through it.
            return None
        if step == "..":
            if not place:
                return None
            place.pop()
        elif step not in {"", "."}:
            place.append(step)
    return "/".join(place)


def _problem(name: str, limits: PackageLimits) -> str:
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in name):
        return "has a control character, or is not UTF-8"
    if len(name.encode()) > limits.path_bytes:
        return f"has more than {limits.path_bytes} bytes"
    if name.startswith("/"):
        return "is an absolute path"
    if "\\" in name or (len(name) > 1 and name[1] == ":"):
        return "is a path of another system"
    parts = name.split("/")
    if len(parts) > limits.path_depth:
        return f"is nested deeper than {limits.path_depth}"
    if ".." in parts:
        return "leaves its folder"
    if "" in parts or "." in parts:
        return "has an empty name in it"
    if any(len(part.encode()) > limits.name_bytes for part in parts):
        return f"has a name of more than {limits.name_bytes} bytes"
    return ""


def fold(part: str) -> str:
    """What file systems that do not tell case and Unicode forms apart may take a name for."""
    folded = unicodedata.normalize("NFKC", part).casefold()
    # Folding may bring back a form that is not normal.
    return unicodedata.normalize("NFKC", folded)
