"""Wheels made again from what is installed."""

import zipfile
from collections.abc import Mapping
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest

from host_service.environments.repacking import needed_distributions, repack, wheel_name

TAGS = "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux2014_x86_64\nTag: cp311-cp311-linux_x86_64\n"


def install(site: Path, files: Mapping[str, str], record: str = "") -> PathDistribution:
    """Lays out what an installer would."""
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    information = site / "Lamp_x-1.0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Lamp.x\nVersion: 1.0\n")
    (information / "WHEEL").write_text(TAGS)
    listed = [f'"{name}",sha256=x,{len(text)}\n' for name, text in files.items()]
    listed += [f"Lamp_x-1.0.dist-info/{name},sha256=y,1\n" for name in ("METADATA", "WHEEL")]
    (information / "RECORD").write_text("".join([*listed, record]))
    return PathDistribution(information)


def test_wheel_holds_what_belongs_to_the_distribution_and_nothing_of_the_installer(
    tmp_path: Path,
) -> None:
    files = {"lamp/__init__.py": "on = True\n", "lamp/__pycache__/x.pyc": "", "lamp/a, b": "c"}
    installed = install(
        tmp_path / "site", files, "Lamp_x-1.0.dist-info/INSTALLER,,\n../../bin/lamp,,\n"
    )
    assert wheel_name(installed) == "Lamp_x-1.0-cp311-cp311-manylinux2014_x86_64.linux_x86_64.whl"
    wheel = tmp_path / wheel_name(installed)
    repack(installed, wheel)
    with zipfile.ZipFile(wheel) as archive:
        assert set(archive.namelist()) == {
            "lamp/__init__.py",
            "lamp/a, b",
            *(f"Lamp_x-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")),
        }


@pytest.mark.parametrize(
    "record",
    ["Lamp_x-1.0.dist-info/direct_url.json,,\n", "../../../share/lamp.txt,,\n"],
    ids=["editable", "files elsewhere"],
)
def test_what_cannot_be_made_again_is_left_out(tmp_path: Path, record: str) -> None:
    assert wheel_name(install(tmp_path, {"lamp.py": ""}, record)) == ""


def test_all_that_the_sdk_needs_can_be_made_again_here() -> None:
    needed = {
        each.name.lower().replace("_", "-"): each for each in needed_distributions("runmesh-sdk")
    }
    assert {"grpcio", "protobuf", "pyyaml", "typing-extensions"} <= needed.keys()
    assert "runmesh-sdk" not in needed
    assert all(wheel_name(each).endswith(".whl") for each in needed.values())


def test_same_distribution_makes_the_same_wheel(tmp_path: Path) -> None:
    installed = distribution("typing-extensions")
    for name in ("one.whl", "two.whl"):
        repack(installed, tmp_path / name)
    assert (tmp_path / "one.whl").read_bytes() == (tmp_path / "two.whl").read_bytes()
