"""What a process of a plugin is started with."""

import sys
from pathlib import Path

import pytest

from host_service.certificates.files import SYSTEM, DialFiles
from host_service.development.recipes import Workplace, way_to_host
from host_service.environments import BuildFailed
from host_service.supervisor import ManifestInvalid

_MANIFEST = """\
apiVersion: runmesh/v1
kind: Plugin
metadata: {{ author: acme, name: weather, version: 0.1.0 }}
run: {{ {run}, env: [WEATHER_KEY], limits: {{ open_files: 99 }} }}
"""


def _workplace(tmp_path: Path, run: str, *, build_command: str = "") -> Workplace:
    folder = tmp_path / "weather"
    folder.mkdir()
    (folder / "manifest.yaml").write_text(_MANIFEST.format(run=run))
    return Workplace(
        folder,
        data_folder=tmp_path / "data",
        way_to_host=way_to_host("unix:/host.sock"),
        build_command=build_command,
    )


async def test_python_plugin_that_asks_for_nothing_runs_in_the_hosts_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_KEY", "sunny")
    monkeypatch.setenv("RUNMESH_API_KEY", "rmk_secret")
    workplace = _workplace(tmp_path, "python: { module: weather.main }")
    recipe = await workplace.recipe(await workplace.manifest(), "token", lambda _: None)
    assert (recipe.python, recipe.module) == (Path(sys.executable), "weather.main")
    assert recipe.can_stand_by
    assert recipe.limits.open_files == 99
    given = recipe.environment
    assert given["RUNMESH_ATTACH"] == "unix:/host.sock"
    assert given["RUNMESH_ATTACH_TOKEN"] == "token"
    assert given["RUNMESH_DEVELOPMENT"] == "1"
    assert given["WEATHER_KEY"] == "sunny"
    assert "RUNMESH_API_KEY" not in given
    assert Path(given["HOME"]).is_relative_to(tmp_path / "data")
    again = await workplace.recipe(await workplace.manifest(), "token", lambda _: None)
    assert again == recipe
    with workplace.held(recipe):
        pass


async def test_other_program_is_started_as_its_manifest_says(tmp_path: Path) -> None:
    workplace = _workplace(tmp_path, 'command: ["./bin/weather", "--fast"]')
    recipe = await workplace.recipe(await workplace.manifest(), "token", lambda _: None)
    assert recipe.command == ("./bin/weather", "--fast")
    assert not recipe.can_stand_by
    assert "token" not in repr(recipe)
    with workplace.held(recipe):
        pass


async def test_build_sees_the_developers_shell_and_its_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOOL", "here")
    lines: list[str] = []
    workplace = _workplace(
        tmp_path, 'command: ["./weather"]', build_command='echo "$MY_TOOL"; pwd; exit 3'
    )
    with pytest.raises(BuildFailed, match="ended with status 3"):
        await workplace.make(lines.append)
    assert lines == ["here", str(tmp_path / "weather")]


async def test_without_a_build_command_nothing_is_built(tmp_path: Path) -> None:
    await _workplace(tmp_path, 'command: ["./weather"]').make(pytest.fail)


async def test_manifest_that_breaks_rules_names_them(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match=r"run\.command"):
        await _workplace(tmp_path, "command: weather").manifest()


def test_way_to_a_host_has_its_certificates() -> None:
    files = DialFiles(ca=Path("/ca.pem"), certificate=Path("/me.pem"), key=Path("/me.key"))
    assert way_to_host("far:7443", tls=files) == {
        "RUNMESH_ATTACH": "far:7443",
        "RUNMESH_TLS_HOST_CA": "/ca.pem",
        "RUNMESH_TLS_CERT": "/me.pem",
        "RUNMESH_TLS_KEY": "/me.key",
    }
    assert way_to_host("far:7443", tls=DialFiles(ca=SYSTEM))["RUNMESH_TLS_HOST_CA"] == str(SYSTEM)
    assert way_to_host("far:7443", insecure=True)["RUNMESH_ATTACH_INSECURE"] == "1"
