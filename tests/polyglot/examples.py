"""The example plugins of all languages, built by their own tools, and again when sources change.

An example says in its manifest how it is built. What it was built from is remembered as a digest in
`build/examples`; a lock there keeps two test processes from building one example at once.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from host_service.supervisor.manifest import Command, read_manifest
from tests.toolchains import require_tool

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

#: Each language's folder in `examples`, and the programs that build and run it.
TOOLS: Mapping[str, tuple[str, ...]] = {
    "go": ("go",),
    "java": ("java", "mvn"),
    "python": (),
    "rust": ("cargo",),
    "typescript": ("node", "npm"),
}
# What an example is made of beside its own folder.
_FURTHER_SOURCES: Mapping[str, tuple[str, ...]] = {
    "go": ("sdk/go",),
    "typescript": ("sdk/typescript", "proto/runmesh/v1"),
}
_ANY_SOURCES = ("proto/runmesh/v1",)
_PLACE = ROOT / "build" / "examples"
# What tools make of sources, at the top of a project: below it, such a name is anybody's.
_MADE = frozenset({"bin", "build", "dist", "node_modules", "target", "__pycache__"})
_NO_SOURCES = (".pyc", ".rmpkg", "Cargo.lock")
_BUILD_SECONDS = 900.0


def built_example(language: str) -> Path:
    """Returns the folder of a language's example, built; builds it where it is not.

    Skips the test, in CI fails it, where the language's tools are missing.
    """
    for tool in TOOLS[language]:
        require_tool(tool)
    folder = EXAMPLES / language
    run = read_manifest(folder).run
    if not isinstance(run, Command) or not run.build:
        return folder
    with _locked(language):
        stamp = _PLACE / f"{language}.digest"
        digest = _digest(language)
        if not (stamp.is_file() and stamp.read_text() == digest and _is_there(folder, run)):
            stamp.unlink(missing_ok=True)
            _build(folder, run.build)
            # Of what there was before: a change meanwhile is built the next time.
            stamp.write_text(digest)
    return folder


def _build(folder: Path, command: str) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if ran.returncode != 0:
        pytest.fail(
            f"{folder.name}: '{command}' ended with {ran.returncode}:\n{ran.stdout}", pytrace=False
        )


def _is_there(folder: Path, run: Command) -> bool:
    program, *arguments = run.words
    files = [word for word in arguments if "/" in word and not word.startswith("-")]
    return ("/" not in program or os.access(folder / program, os.X_OK)) and all(
        (folder / file).exists() for file in files
    )


@contextmanager
def _locked(language: str) -> Iterator[None]:
    _PLACE.mkdir(parents=True, exist_ok=True)
    with (_PLACE / f"{language}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(language: str) -> str:
    seen = hashlib.sha256()
    for tool in TOOLS[language]:
        # Another version of a tool, as far as its place tells, makes other programs.
        seen.update(f"{os.path.realpath(shutil.which(tool) or tool)}\n".encode())
    folders = [f"examples/{language}", *_FURTHER_SOURCES.get(language, _ANY_SOURCES)]
    for path in (each for name in folders for each in sorted(_sources(ROOT / name))):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        seen.update(f"{path.relative_to(ROOT)} {content}\n".encode())
    return seen.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    """Yields the files that a project is made of, in any order."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name in _MADE and entry.is_dir():
            continue
        for path in entry.rglob("*") if entry.is_dir() else (entry,):
            if path.is_file() and not path.name.endswith(_NO_SOURCES):
                yield path
