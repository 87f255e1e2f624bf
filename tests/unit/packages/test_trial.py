"""Tests of the trial: a plugin is run for a moment, and must serve what its files describe."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host_service.packages.errors import OwnTestsFailed, PluginDisagrees, PluginDoesNotRun
from host_service.packages.own_tests import RanBy, run_own_tests
from host_service.packages.packing import PluginFolder
from host_service.packages.scaffold import make_plugin
from host_service.packages.trial import compare, try_plugin
from host_service.registry import Instance, Introduction
from host_service.supervisor import RestartPolicy
from host_service.supervisor.interpreter import hosts_interpreter

QUICK = RestartPolicy(ready_timeout_seconds=10.0, stop_grace_seconds=2.0)


@pytest.fixture
def plugin(tmp_path: Path) -> PluginFolder:
    make_plugin(tmp_path / "weather", name="weather", author="acme", language="python")
    return PluginFolder.read(tmp_path / "weather")


def serving(plugin: PluginFolder, *, version: str = "0.1.0", **changes: Any) -> Instance:
    """An instance that serves what the files describe, but for some fields."""
    manifests = {}
    for described in plugin.runners.runners.values():
        served = type(described)()
        served.CopyFrom(described)
        for name, value in changes.items():
            setattr(served, name, value)
        manifests[served.id] = served
    introduction = Introduction("i", version, "", 0, manifests)
    return cast("Instance", SimpleNamespace(introduction=introduction, manifests=manifests))


def test_process_that_serves_its_files_is_fine(plugin: PluginFolder) -> None:
    compare(plugin, serving(plugin))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"protocol_version": "2"}, 'protocol_version is "1" in the file and "2" in ListRunners'),
        ({"id": "plugin:acme/weather/other"}, r"default is described and not served"),
    ],
)
def test_difference_is_named(changes: dict[str, Any], told: str, plugin: PluginFolder) -> None:
    with pytest.raises(PluginDisagrees, match=told):
        compare(plugin, serving(plugin, **changes))


def test_difference_deep_inside_is_named_and_json_may_be_written_otherwise(
    plugin: PluginFolder,
) -> None:
    [described] = plugin.runners.runners.values()
    field = described.config_schema.add(name="a", type="json", default_json='{"b": [1]}')
    instance = serving(plugin)
    [served] = instance.manifests.values()
    served.config_schema[0].default_json = '{ "b":[1] }'
    compare(plugin, instance)
    field.label.text["en_US"] = "A"
    with pytest.raises(PluginDisagrees, match=r"config_schema\[0\]\.label is .*nothing in ListR"):
        compare(plugin, instance)


def test_version_in_the_handshake_counts(plugin: PluginFolder) -> None:
    with pytest.raises(PluginDisagrees, match=r"handshake that it is '7'"):
        compare(plugin, serving(plugin, version="7"))


async def test_good_plugin_is_tried_and_leaves_nothing(plugin: PluginFolder) -> None:
    before = {each for each in plugin.path.rglob("*") if "__pycache__" not in each.parts}
    await try_plugin(plugin, find_interpreter=hosts_interpreter, restart=QUICK)
    after = {each for each in plugin.path.rglob("*") if "__pycache__" not in each.parts}
    assert after == before


async def test_plugin_that_does_not_start_is_told_with_its_words(plugin: PluginFolder) -> None:
    (plugin.path / "weather" / "default.py").write_text("raise SystemExit('no such thing')\n")
    with pytest.raises(PluginDoesNotRun, match=r"exited with code 1.*\n.*no such thing"):
        await try_plugin(plugin, find_interpreter=hosts_interpreter, restart=QUICK)


async def test_runner_that_is_described_and_not_served_is_found(plugin: PluginFolder) -> None:
    component = plugin.path / "components" / "agent_runner" / "default.yaml"
    second = component.read_text().replace('"default"', '"second"')
    component.with_name("second.yaml").write_text(second)
    with (plugin.path / "manifest.yaml").open("a") as manifest:
        manifest.write("  - components/agent_runner/second.yaml\n")
    with pytest.raises(PluginDisagrees, match=r"weather/second is described and not served"):
        await try_plugin(
            PluginFolder.read(plugin.path), find_interpreter=hosts_interpreter, restart=QUICK
        )


@pytest.mark.timeout(150)
def test_plugins_own_tests_run_with_what_there_is(plugin: PluginFolder, tmp_path: Path) -> None:
    assert run_own_tests(plugin.path, Path(sys.executable)) is RanBy.PYTEST
    test = plugin.path / "tests" / "test_default.py"
    test.write_text(test.read_text().replace("You said", "I said"))
    with pytest.raises(OwnTestsFailed, match="pytest ended with 1"):
        run_own_tests(plugin.path, Path(sys.executable))
    test.write_text("")
    assert run_own_tests(plugin.path, Path(sys.executable)) is RanBy.NOTHING
    test.unlink()
    assert run_own_tests(plugin.path, Path(sys.executable)) is RanBy.NOTHING


def test_plugins_own_tests_run_without_pytest(plugin: PluginFolder, tmp_path: Path) -> None:
    # A Python that has all but pytest.
    bare = tmp_path / "python"
    bare.write_text(
        f'#!/bin/sh\ncase "$2" in *pytest*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    bare.chmod(0o755)
    assert run_own_tests(plugin.path, bare) is RanBy.UNITTEST
    test = plugin.path / "tests" / "test_default.py"
    test.write_text(test.read_text().replace("You said", "I said"))
    with pytest.raises(OwnTestsFailed, match="unittest ended with 1"):
        run_own_tests(plugin.path, bare)
