"""What every tracked file must keep to, whoever wrote it."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import runner_sdk

ROOT = Path(__file__).parents[2]

# Where a developer's own folders tend to be. A path of one machine is of no use on another.
_MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|root|home/\w+|Users/\w+|opt/wheels)/")
# Installers choose where packages come from; a file that names a host would choose for them.
_PACKAGE_HOST = re.compile(
    r"\b(?:(?:files\.)?pypi\.org|pythonhosted\.org|registry\.(?:npmjs\.org|yarnpkg\.com)"
    r"|proxy\.golang\.org|(?:static|index)\.crates\.io|repo\d?\.maven\.apache\.org)\b"
)
_LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-weights.lock")


def _tracked_texts() -> Iterator[tuple[Path, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("needs a git work tree; this copy of the sources is none")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        # This file holds the patterns; what was just removed, or is a link, holds nothing.
        if path == Path(__file__) or path.is_symlink() or not path.is_file():
            continue
        try:
            yield path.relative_to(ROOT), path.read_text("utf-8")
        except UnicodeDecodeError:
            # Bytes, such as those of the contract on the wire: looked for all the same.
            yield path.relative_to(ROOT), path.read_bytes().decode("latin-1")


@pytest.mark.parametrize(
    "pattern", [_MACHINE_PATH, _PACKAGE_HOST], ids=["machine path", "package host"]
)
def test_no_tracked_file_names_a_place_outside(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in _tracked_texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("name", _LOCKS)
def test_lock_pins_every_package_to_hashes(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"\A(?:#[^\n]*\n)*", "", text))
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9][a-z0-9._-]*==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


@pytest.mark.parametrize("name", _LOCKS)
def test_lock_says_nothing_of_where_packages_come_from(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for sign in ("://", "--index", "--extra-index", "--find-links", " @ ", "file:"):
        assert sign not in text


def test_development_lock_has_the_same_versions_as_the_one_for_running() -> None:
    pins = [
        dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text("utf-8"), re.MULTILINE))
        for name in _LOCKS[:2]
    ]
    running, development = pins
    assert running.items() <= development.items()


def test_host_asks_for_the_sdk_beside_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"runmesh-sdk=={runner_sdk.__version__}" in project["dependencies"]


def test_every_make_target_is_explained_by_help() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    explained = set(re.findall(r"^([a-z-]+):[^#\n]*## ", makefile, re.MULTILINE))
    internal = {"style", "types"}
    assert set(re.findall(r"^\.PHONY: ([a-z-]+)$", makefile, re.MULTILINE)) - internal == explained
