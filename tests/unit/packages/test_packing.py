"""Tests of `host_service.packages.packing`: what a package has, and that it is always the same."""

import os
import socket
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from host_service.limits import PackageLimits
from host_service.packages.errors import NotAPlugin
from host_service.packages.ignoring import IgnoreRules
from host_service.packages.package import Package
from host_service.packages.packing import PluginFolder, pack
from tests.unit.packages.folders import write_plugin


def packed(folder: Path, target: Path | None = None) -> Package:
    return pack(PluginFolder.read(folder), target or folder)


def names(package: Package) -> list[str]:
    return [each.name for each in package.contents.files]


def test_package_is_named_after_plugin_and_version_and_holds_its_files(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    (folder / "données").mkdir()
    (folder / "données" / "天气.txt").write_text("晴")
    package = packed(folder)
    assert package.path == folder / "weather-1.0.0.rmpkg"
    assert [(each.name, each.kind) for each in package.contents.files] == [
        ("données/天气.txt", "file"),
        ("manifest.yaml", "file"),
        ("run", "program"),
    ]
    package.unpack(tmp_path / "out")
    assert (tmp_path / "out/données/天气.txt").read_text() == "晴"
    assert os.access(tmp_path / "out/run", os.X_OK)


def test_same_files_give_the_same_bytes_whenever_and_wherever(tmp_path: Path) -> None:
    first = write_plugin(tmp_path / "one" / "weather")
    (first / "a.txt").write_text("x" * 5_000)
    second = tmp_path / "two" / "elsewhere"
    second.mkdir(parents=True)
    # Made in another order, at another time, under another mask, with other modes of one meaning.
    before = os.umask(0o077)
    try:
        (second / "a.txt").write_text("x" * 5_000)
        write_plugin(second)
    finally:
        os.umask(before)
    os.utime(second / "a.txt", (0, 0))
    (second / "run").chmod(0o711)
    assert packed(first).path.read_bytes() == packed(second).path.read_bytes()
    assert packed(first).sha256 == packed(second).sha256


def test_package_that_lies_in_the_folder_is_not_packed_into_the_next(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    first = packed(folder).sha256
    assert packed(folder).sha256 == first


def test_other_tools_can_read_a_package(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    (folder / "large").write_bytes(b"\0" * 3_000_000)
    with zipfile.ZipFile(packed(folder).path) as archive:
        assert archive.testzip() is None
        assert archive.read("manifest.yaml") == (folder / "manifest.yaml").read_bytes()
        mode = archive.getinfo("run").external_attr >> 16
    assert stat.filemode(mode) == "-rwxr-xr-x"


def test_what_tools_leave_behind_and_keys_stay_out(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    for name in (
        ".git/config", "__pycache__/a.pyc", "lib/__pycache__/b.pyc", "lib/c.pyo",
        ".venv/bin/python",
        ".env", "acme.key", "lib/other.key", ".DS_Store", ".package/install.json", "old-0.1.rmpkg",
    ):  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (folder / "lib" / "kept.py").write_text("x")
    assert names(packed(folder)) == ["lib/kept.py", "manifest.yaml", "run"]


def test_plugins_own_ignore_file_counts(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    (folder / ".rmpkgignore").write_text("# not for others\n/notes/\n*.log\n!keep.log\n")
    (folder / "notes").mkdir()
    for name in ("notes/a", "b.log", "keep.log"):
        (folder / name).write_text("x")
    assert names(packed(folder)) == ["keep.log", "manifest.yaml", "run"]


@pytest.mark.parametrize(
    ("pattern", "path", "is_folder", "out"),
    [
        ("*.log", "a.log", False, True),
        ("*.log", "deep/in/a.log", False, True),
        ("/a.log", "deep/a.log", False, False),
        ("docs/", "docs", True, True),
        ("docs/", "docs", False, False),
        ("docs/*.md", "docs/a.md", False, True),
        ("docs/*.md", "docs/more/a.md", False, False),
        ("docs/**/a.md", "docs/more/and/a.md", False, True),
        ("docs/**", "docs/more/a.md", False, True),
        ("**/tmp", "a/b/tmp", True, True),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, False),
        ("[ab].txt", "a.txt", False, True),
        ("[!ab].txt", "a.txt", False, False),
        ("a.b", "aXb", False, False),
        ("a+(b)", "a+(b)", False, True),
    ],
)
def test_ignore_patterns(pattern: str, path: str, is_folder: bool, out: bool) -> None:
    assert IgnoreRules([pattern]).leaves_out(path, is_folder=is_folder) is out


def test_links_within_are_kept_as_links_and_others_refused(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    (folder / "start").symlink_to("run")
    package = packed(folder)
    package.unpack(tmp_path / "out")
    assert (tmp_path / "out" / "start").readlink() == Path("run")
    for target in ("../outside", "/etc/passwd", str(folder / "run"), "nowhere"):
        (folder / "start").unlink()
        (folder / "start").symlink_to(target)
        with pytest.raises(NotAPlugin, match="'start' is a link to"):
            packed(folder)


def test_what_no_package_can_have_is_named(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(folder)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        with pytest.raises(NotAPlugin, match="socket is neither a file"):
            packed(folder)
    (folder / "socket").unlink()
    (folder / "README").write_text("x")
    (folder / "readme").write_text("x")
    with pytest.raises(NotAPlugin, match="would be in one place"):
        packed(folder)
    (folder / "readme").unlink()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("x")
    with pytest.raises(NotAPlugin, match="not UTF-8"):
        packed(folder)


def test_folder_that_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather")
    (folder / "large").write_bytes(os.urandom(5_000))
    limits = replace(PackageLimits(), unpacked_bytes=4_000)
    with pytest.raises(NotAPlugin, match="more than 4000 bytes"):
        pack(PluginFolder.read(folder), tmp_path, limits=limits)
    with pytest.raises(NotAPlugin, match="the limit is 4000"):
        pack(
            PluginFolder.read(folder),
            tmp_path,
            limits=replace(limits, unpacked_bytes=9_000, package_bytes=4_000),
        )
    assert [each.name for each in tmp_path.iterdir()] == ["weather"]


def test_version_that_is_no_part_of_a_file_name_is_refused(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "weather", version="'1/2'")
    with pytest.raises(NotAPlugin, match=r"metadata\.version must match"):
        packed(folder)


def test_folder_without_a_good_manifest_is_no_plugin(tmp_path: Path) -> None:
    with pytest.raises(NotAPlugin, match=r"it has no manifest\.yaml"):
        PluginFolder.read(tmp_path)
    (tmp_path / "manifest.yaml").write_text("kind: Plugin\n")
    with pytest.raises(NotAPlugin, match="apiVersion"):
        PluginFolder.read(tmp_path)
    write_plugin(tmp_path)
    with (tmp_path / "manifest.yaml").open("a") as manifest:
        manifest.write("components: [missing.yaml]\n")
    with pytest.raises(NotAPlugin, match=r"missing\.yaml"):
        PluginFolder.read(tmp_path)
