"""Which environments are needed: by plugins that are there, and by versions that may come back."""

import json
from pathlib import Path

import pytest

from host_service.environments import EnvironmentShelf
from host_service.environments.needs import collect_unneeded, needs_of, plugin_places


@pytest.fixture
def shelf(tmp_path: Path) -> EnvironmentShelf:
    """The environments of an empty data folder."""
    return EnvironmentShelf(tmp_path)


def write(folder: Path, requirements: str, *, manifest: str | None = None) -> Path:
    """Writes a Python plugin."""
    folder.mkdir(parents=True)
    document = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {"author": "acme", "name": "desk", "version": "1.0.0"},
        "run": {"python": {"module": "desk"}},
    }
    (folder / "manifest.yaml").write_text(json.dumps(document) if manifest is None else manifest)
    (folder / "requirements.txt").write_text(requirements)
    return folder


def put(shelf: EnvironmentShelf, plugin: Path) -> str:
    """Puts the environment of a plugin in its place; returns its key."""
    environment = shelf.find(shelf.read(plugin))
    with shelf.workshop() as workshop:
        made = workshop / "made"
        (made / "bin").mkdir(parents=True)
        (made / "bin" / "python").symlink_to("/bin/sh")
        (made / "environment.json").write_text("{}")
        shelf.put(made, environment)
    return environment.key


def collected(shelf: EnvironmentShelf, data: Path) -> list[str]:
    places = plugin_places(data, versions=True)
    return [each.environment.key for each in collect_unneeded(shelf, places)]


def test_what_a_plugin_needs_is_told_by_plugin(shelf: EnvironmentShelf, tmp_path: Path) -> None:
    plugin = write(tmp_path / "plugins" / "desk", "lamp\n")
    (need,) = [
        each for each in needs_of(shelf, plugin_places(tmp_path)) if each.plugin_id[0] == "a"
    ]
    assert (need.plugin_id, need.folder) == ("acme/desk", plugin)
    assert need.environment is not None
    assert not need.environment.is_ready
    key = put(shelf, plugin)
    (built,) = needs_of(shelf, [plugin])
    assert built.environment is not None
    assert (built.environment.key, built.environment.is_ready) == (key, True)
    (plugin / "requirements.txt").write_text("--pre\n")
    (refused,) = needs_of(shelf, [plugin])
    assert refused.environment is None
    assert "requirements.txt:1" in refused.problem


def test_environments_of_versions_that_may_come_back_are_kept(
    shelf: EnvironmentShelf, tmp_path: Path
) -> None:
    versions = tmp_path / "plugin-versions" / "acme+desk"
    old, new, gone = (write(versions / each, f"lamp=={each}\n") for each in ("1", "2", "0"))
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "acme+desk").symlink_to(new)
    keys = {each.name: put(shelf, each) for each in (old, new, gone)}
    gone.rename(tmp_path / "elsewhere")
    assert collected(shelf, tmp_path) == [keys["0"]]
    assert {each.environment.key for each in shelf.kept()} == {keys["1"], keys["2"]}


def test_slip_in_a_manifest_costs_no_environment(shelf: EnvironmentShelf, tmp_path: Path) -> None:
    plugin = write(tmp_path / "plugins" / "desk", "lamp\n", manifest="kind: [")
    put(shelf, plugin)
    assert collected(shelf, tmp_path) == []
