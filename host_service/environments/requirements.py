"""What a plugin asks for: read from its folder, made into one flat list, free of surprises.

A plugin asks for packages by name and version. Where packages come from is the operator's matter:
wheels that are kept are shared by plugins, so no plugin may bring a registry of its own, and what
no registry has lies as a wheel in the plugin's `wheels/`.
"""

import hashlib
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from host_service.environments.errors import RequirementsInvalid
from host_service.environments.python_version import allows

REQUIREMENTS_NAME = "requirements.txt"
PROJECT_NAME = "pyproject.toml"
WHEELS_NAME = "wheels"

_FILE_LIMIT_BYTES = 256 * 1024
_FILES = 32

_COMMENT = re.compile(r"(^|\s)#.*$")
_SPACE = re.compile(r"\s+")
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?) ?(?:\[[A-Za-z0-9._, -]*\])? ?"
    r"(?P<rest>(?:[<>=!~(;]| ?--hash=).*)?"
)
_INCLUDED = re.compile(r"(-r|-c|--requirement|--constraint)[ =]?(.+)")
# Options that say which files of a package will do. All others say where packages come from, or
# change what is not ours to change.
_OPTION = re.compile(r"--require-hashes|--(no|only)-binary[ =][A-Za-z0-9:._, -]+")
_REQUIREMENT_OPTION = re.compile(r"(?:^| )--(?!hash=)")
_NAME_BREAK = re.compile(r"[-_.]+")


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a plugin asks for.

    Attributes:
        lines: Requirements and options, sorted, without comments.
        constraints: Bounds for what others ask for, sorted.
        wheels: Wheels that it brings.
        digests: The SHA-256 of each of those, by file name.
    """

    lines: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    wheels: tuple[Path, ...] = ()
    digests: tuple[tuple[str, str], ...] = field(default=())

    def __bool__(self) -> bool:
        return any(not line.startswith("-") for line in self.lines)

    @property
    def has_hashes(self) -> bool:
        """Whether every package must have one of the hashes that are listed."""
        return any("--hash=" in line or line == "--require-hashes" for line in self.lines)


def package_name(text: str) -> str:
    """The normal form of the name that a requirement or the name of a wheel begins with."""
    match = _REQUIREMENT.match(text)
    return _NAME_BREAK.sub("-", match["name"]).lower() if match else ""


class RequirementsReader:
    """Reads what plugins ask for; remembers the digests of wheels that have not changed.

    Its methods block on the file system: they are called in a thread.
    """

    def __init__(self) -> None:
        self._digests: dict[tuple[str, int, int, int], str] = {}

    def read(self, folder: Path) -> Requirements:
        """What the plugin in a folder asks for: nothing when it has no file that says so.

        `requirements.txt` counts before `pyproject.toml`, which it may pin.

        Raises:
            RequirementsInvalid: A file cannot be read, or asks for what cannot be given.
        """
        reading = _Reading(folder)
        if (folder / REQUIREMENTS_NAME).exists():
            reading.take_file(REQUIREMENTS_NAME, is_constraint=False)
        elif (folder / PROJECT_NAME).exists():
            reading.take_project()
        if not reading.lines:
            return Requirements()
        wheels = tuple(_wheels(folder))
        return Requirements(
            lines=tuple(sorted(set(reading.lines))),
            constraints=tuple(sorted(set(reading.constraints))),
            wheels=wheels,
            digests=tuple((wheel.name, self._digest(wheel)) for wheel in wheels),
        )

    def _digest(self, wheel: Path) -> str:
        status = wheel.stat()
        stamp = (str(wheel), status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp not in self._digests:
            self._digests[stamp] = file_digest(wheel)
        return self._digests[stamp]


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Reading:
    """One look at a plugin's files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._seen: set[tuple[Path, bool]] = set()
        self.lines: list[str] = []
        self.constraints: list[str] = []

    def take_file(self, name: str, *, is_constraint: bool, asked_at: str = "") -> None:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise RequirementsInvalid(asked_at or name, f"must stay in the folder, got {name!r}")
        if (path, is_constraint) in self._seen:
            return
        self._seen.add((path, is_constraint))
        if len(self._seen) > _FILES:
            raise RequirementsInvalid(asked_at, f"must name at most {_FILES} files in all")
        for number, line in _logical_lines(self._text(path, asked_at)):
            place = f"{path.relative_to(self._folder)}:{number}"
            included = _INCLUDED.fullmatch(line)
            if included is None:
                self._take(line, place, is_constraint=is_constraint)
                continue
            beside = path.parent.relative_to(self._folder) / included[2].strip()
            bounds = is_constraint or included[1] in {"-c", "--constraint"}
            self.take_file(str(beside), is_constraint=bounds, asked_at=place)

    def take_project(self) -> None:
        try:
            document = tomllib.loads(self._text(self._folder / PROJECT_NAME, ""))
        except tomllib.TOMLDecodeError as error:
            raise RequirementsInvalid(PROJECT_NAME, f"must be TOML: {error}") from error
        project = document.get("project", {})
        if not isinstance(project, dict):
            raise RequirementsInvalid(PROJECT_NAME, "project must be a table")
        _check_python(project.get("requires-python", ""))
        if "dependencies" in (project.get("dynamic") or ()):
            rule = "project.dependencies must be written out here, or in requirements.txt"
            raise RequirementsInvalid(PROJECT_NAME, rule)
        dependencies = project.get("dependencies", [])
        if not isinstance(dependencies, list):
            raise RequirementsInvalid(PROJECT_NAME, "project.dependencies must be a list")
        for index, line in enumerate(dependencies):
            place = f"{PROJECT_NAME}: project.dependencies[{index}]"
            if not isinstance(line, str) or line.lstrip().startswith("-"):
                raise RequirementsInvalid(place, f"must be a requirement, got {_shown(line)}")
            self._take(_SPACE.sub(" ", line.strip()), place, is_constraint=False)

    def _take(self, line: str, place: str, *, is_constraint: bool) -> None:
        if _OPTION.fullmatch(line) is None:
            match = _REQUIREMENT.fullmatch(line)
            if match is None:
                rule = (
                    "must be a package's name and versions (a wheel that no registry has goes "
                    f"into {WHEELS_NAME}/), got {_shown(line)}"
                )
                raise RequirementsInvalid(place, rule)
            if _REQUIREMENT_OPTION.search(line):
                raise RequirementsInvalid(place, f"must have no option but --hash, got {line!r}")
        (self.constraints if is_constraint else self.lines).append(line)

    def _text(self, path: Path, asked_at: str) -> str:
        name = str(path.relative_to(self._folder))
        try:
            if not path.is_file() or not path.resolve().is_relative_to(self._folder):
                raise RequirementsInvalid(asked_at or name, f"must be a file here, got {name!r}")
            if path.stat().st_size > _FILE_LIMIT_BYTES:
                raise RequirementsInvalid(name, f"must have at most {_FILE_LIMIT_BYTES} bytes")
            return path.read_text("utf-8-sig")
        except OSError as error:
            raise RequirementsInvalid(name, f"must be readable: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RequirementsInvalid(name, f"must be UTF-8: byte {error.start} is not") from error


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of each line that says something, continued lines joined."""
    begun, begun_at = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        begun_at = begun_at or number
        line = _COMMENT.sub("", raw).rstrip()
        if line.endswith("\\"):
            begun += f"{line[:-1]} "
            continue
        whole = _SPACE.sub(" ", begun + line).strip()
        if whole:
            yield begun_at, whole
        begun, begun_at = "", 0


def _check_python(specifier: object) -> None:
    place = f"{PROJECT_NAME}: project.requires-python"
    ours = sys.version_info[:3]
    try:
        is_allowed = allows(str(specifier), ours)
    except ValueError as error:
        raise RequirementsInvalid(place, str(error)) from error
    if not is_allowed:
        told = ".".join(str(part) for part in ours)
        raise RequirementsInvalid(place, f"must allow the host's Python {told}, got {specifier!r}")


def _wheels(folder: Path) -> Sequence[Path]:
    """The wheels that a plugin brings; nothing that a link leads to elsewhere."""
    base = folder.resolve() / WHEELS_NAME
    found = sorted(base.glob("*.whl")) if base.is_dir() else []
    for wheel in found:
        if not wheel.is_file() or not wheel.resolve().is_relative_to(folder.resolve()):
            raise RequirementsInvalid(f"{WHEELS_NAME}/{wheel.name}", "must be a file in the folder")
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text[:80]}..." if len(text) > 80 else text
