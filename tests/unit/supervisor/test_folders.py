"""Tests of `host_service.supervisor.folders`."""

import os
from pathlib import Path

from host_service.supervisor.errors import ManifestInvalid
from host_service.supervisor.folders import PluginFolders, tree_stamp
from host_service.supervisor.manifest import PluginManifest


def add_plugin(folder: Path, version: str = "1.0.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.yaml").write_text(
        "apiVersion: runmesh/v1\nkind: Plugin\n"
        f"metadata: {{ author: acme, name: {folder.name}, version: {version} }}\n"
        "run: { command: [./run] }\n"
    )
    return folder


def test_plugin_folders_come_and_go(tmp_path: Path) -> None:
    folders = PluginFolders([tmp_path / "absent", tmp_path])
    assert folders.scan() == {}
    one = add_plugin(tmp_path / "one")
    (tmp_path / "no-plugin").mkdir()
    add_plugin(tmp_path / ".hidden")
    assert list(folders.scan()) == [one]
    (one / "manifest.yaml").unlink()
    assert folders.scan() == {}


def test_base_that_is_a_plugin_itself_is_one(tmp_path: Path) -> None:
    one = add_plugin(tmp_path / "one")
    assert list(PluginFolders([one]).scan()) == [one]


def test_changed_manifest_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    folders = PluginFolders([tmp_path])
    one = add_plugin(tmp_path / "one")
    first = folders.scan()[one]
    assert folders.scan()[one] is first
    add_plugin(one, version="1.10.0")
    changed = folders.scan()[one]
    assert isinstance(changed, PluginManifest)
    assert changed.version == "1.10.0"


def test_broken_manifest_is_told_beside_the_good_ones(tmp_path: Path) -> None:
    broken, good = add_plugin(tmp_path / "a"), add_plugin(tmp_path / "b")
    (broken / "manifest.yaml").write_text("kind: [")
    found = PluginFolders([tmp_path]).scan()
    assert isinstance(found[broken], ManifestInvalid)
    assert isinstance(found[good], PluginManifest)


def test_changed_file_anywhere_changes_the_folders_stamp(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    code = tmp_path / "deep" / "er" / "main.py"
    code.write_text("1")
    before = tree_stamp(tmp_path)
    assert tree_stamp(tmp_path) == before
    os.utime(code, ns=(1, 1))
    assert tree_stamp(tmp_path) != before


def test_files_that_change_by_themselves_do_not_change_the_stamp(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("1")
    before = tree_stamp(tmp_path)
    for name in ("__pycache__", ".git", "node_modules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("1")
    assert tree_stamp(tmp_path) == before


def test_link_stands_for_the_folder_it_leads_to_and_another_target_is_another_folder(
    tmp_path: Path,
) -> None:
    first, second = add_plugin(tmp_path / "kept" / "v1"), add_plugin(tmp_path / "kept" / "v2")
    base = tmp_path / "plugins"
    base.mkdir()
    link = base / "desk"
    link.symlink_to("../kept/v1")
    folders = PluginFolders([base])
    assert list(folders.scan()) == [first]

    new = base / ".new"
    new.symlink_to(second)
    new.replace(link)
    [(folder, manifest)] = folders.scan().items()
    assert folder == second
    assert isinstance(manifest, PluginManifest)
    assert manifest.folder == second

    link.unlink()
    link.symlink_to("../kept/v3")
    assert folders.scan() == {}
