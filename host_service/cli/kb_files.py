"""Which files a command means: folders walked, patterns opened, everything else named."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from host_service.cli.failures import CommandError
from host_service.knowledge.kinds import ENDINGS

_WILDCARDS = frozenset("*?[")
# What programs made for themselves, in folders of texts as well.
_NOT_WALKED = frozenset({"node_modules", "__pycache__"})
_LONGEST_ID = 255


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to be added.

    Attributes:
        path: Where it is.
        document_id: Its path within the folder that was given, or its name: the same as long as
            it stays there.
    """

    path: Path
    document_id: str


@dataclass(slots=True)
class FoundFiles:
    """What was found.

    Attributes:
        files: To be added, in the order of their ids.
        skipped: What is left out, with why.
        folders: The folders that were walked whole: what is not found there is not there.
    """

    files: list[FoundFile] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def find_files(given: Sequence[str]) -> FoundFiles:
    """Finds the files of some paths: files, folders, and patterns such as `docs/**/*.md`.

    Args:
        given: As they were typed.

    Raises:
        CommandError: There is nothing at a path, or two files would be the same document.
    """
    found = FoundFiles()
    for each in given:
        path = Path(each)
        if path.is_dir():
            found.folders.append(path.resolve())
            _take_folder(path, found)
        elif path.exists():
            _take(path, path.name, found)
        elif _WILDCARDS & set(each):
            _take_pattern(path, found)
        else:
            raise CommandError(f"there is no file or folder {each}", "give one that is there")
    found.files.sort(key=lambda each: each.document_id)
    for one, two in zip(found.files, found.files[1:], strict=False):
        if one.document_id == two.document_id and one.path.resolve() != two.path.resolve():
            raise CommandError(
                f"{one.path} and {two.path} would be the same document {one.document_id!r}",
                "add the folder above both, or one after the other to two knowledge bases",
            )
    found.files = list({each.document_id: each for each in found.files}.values())
    return found


def _take_folder(folder: Path, found: FoundFiles) -> None:
    for path in sorted(_walk(folder)):
        if path.suffix.lower() in ENDINGS:
            _take(path, path.relative_to(folder).as_posix(), found)
        else:
            kind = f"files that end in {path.suffix}" if path.suffix else "files without an ending"
            found.skipped.append((str(path), f"{kind} are no documents; name it to add it"))


def _walk(folder: Path) -> Iterator[Path]:
    # Links to folders are not followed: they may lead in a circle, and out of what was meant.
    for above, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not _is_hidden(each) and each not in _NOT_WALKED]
        yield from (Path(above, name) for name in names if not _is_hidden(name))


def _take_pattern(pattern: Path, found: FoundFiles) -> None:
    parts = pattern.parts
    fixed = next(i for i, part in enumerate(parts) if _WILDCARDS & set(part))
    folder = Path(*parts[:fixed])
    matches = [each for each in folder.glob(str(Path(*parts[fixed:]))) if each.is_file()]
    shown = [each for each in matches if not any(map(_is_hidden, each.relative_to(folder).parts))]
    if not shown:
        raise CommandError(f"nothing matches {pattern}", "give a pattern that something matches")
    for each in sorted(shown):
        _take(each, each.relative_to(folder).as_posix(), found)


def _take(path: Path, document_id: str, found: FoundFiles) -> None:
    if not path.is_file():
        found.skipped.append((str(path), "it is no file"))
        return
    try:
        size = len(document_id.encode())
    except UnicodeEncodeError:
        found.skipped.append((repr(str(path)), "its name is not UTF-8"))
        return
    if size > _LONGEST_ID:
        found.skipped.append((str(path), f"its name has over {_LONGEST_ID} bytes"))
    else:
        found.files.append(FoundFile(path, document_id))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")
