"""What is shipped: both wheels hold what a user needs, and work without the work tree."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels, built as `make wheels` builds them."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    build += ["--no-index", "--wheel-dir", str(folder), str(ROOT / "runner_sdk"), str(ROOT)]
    built = subprocess.run(build, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels unpacked into one folder, as an installer lays them out."""
    folder = tmp_path_factory.mktemp("installed")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def _run_python(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on the unpacked wheels; without `site` it sees no editable installs."""
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join([str(installed), sysconfig.get_path("purelib")]),
    }
    return subprocess.run(
        [sys.executable, "-S", "-P", *arguments],
        cwd=installed,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )


def _names(wheels: Path, pattern: str) -> set[str]:
    (wheel,) = wheels.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _sources(folder: str, place: str) -> set[str]:
    return {
        (Path(place) / path.relative_to(ROOT / folder)).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".typed", ".html", ".yaml", ".css", ".js", ".mako", ".in"}
        and not {"__pycache__", "node_modules"} & set(path.parts)
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    }


def test_sdk_wheel_holds_the_sdk_and_the_contract_and_nothing_of_the_host(wheels: Path) -> None:
    names = _names(wheels, "runmesh_sdk-*.whl")
    assert _sources("runner_sdk", "runner_sdk") <= names
    assert _sources("proto/gen/python/runmesh/v1", "runmesh/v1") <= names
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"runner_sdk", "runmesh"}
    assert not [name for name in names if name.startswith("runmesh/admin/")]
    assert "runner_sdk/LICENSE" in names


def test_host_wheel_holds_host_stores_plugins_and_the_sdks_wheel(wheels: Path) -> None:
    names = _names(wheels, "runmesh-*.whl")
    assert _sources("host_service", "host_service") <= names
    assert _sources("stores", "stores") <= names
    assert _sources("plugins", "host_service/shipped_plugins") <= names
    assert _sources("proto/gen/python/runmesh/admin", "runmesh/admin") <= names
    assert not [name for name in names if name.startswith(("runmesh/v1/", "tests/"))]
    (sdk,) = wheels.glob("runmesh_sdk-*.whl")
    assert f"host_service/shipped_wheels/{sdk.name}" in names


@pytest.mark.parametrize("pattern", ["runmesh-*.whl", "runmesh_sdk-*.whl"])
def test_no_wheel_holds_a_namespace_or_cache_file(wheels: Path, pattern: str) -> None:
    names = _names(wheels, pattern)
    assert "runmesh/__init__.py" not in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_wheels_work_without_the_work_tree(installed: Path) -> None:
    modules = "runner_sdk, stores, host_service, runmesh.v1.run_pb2, runmesh.admin.v1.admin_pb2"
    ran = _run_python(
        installed,
        "-c",
        f"import {modules}; print(host_service.__file__, runmesh.v1.run_pb2.__file__)",
    )
    assert ran.returncode == 0, ran.stderr
    assert all(Path(file).is_relative_to(installed) for file in ran.stdout.split())


def test_command_line_starts_from_the_wheel(installed: Path) -> None:
    ran = _run_python(installed, "-m", "host_service", "--version")
    assert ran.returncode == 0, ran.stderr
    assert "0.1.0" in ran.stdout


def test_installed_host_builds_the_environment_of_a_plugin_without_a_network(
    installed: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "desk"
    plugin.mkdir()
    (plugin / "manifest.yaml").write_text(
        "apiVersion: runmesh/v1\nkind: Plugin\n"
        "metadata: {author: acme, name: desk, version: 1.0.0}\n"
        "run: {python: {module: desk}}\n"
    )
    (plugin / "requirements.txt").write_text("runmesh-sdk\n")
    command = ["plugins", "build", str(plugin), "--offline", "--data", str(tmp_path / "data")]
    ran = _run_python(installed, "-m", "host_service", *command)
    assert ran.returncode == 0, ran.stderr
    assert "acme/desk got environment" in ran.stdout
    (python,) = (tmp_path / "data" / "environments").glob("*/bin/python")
    told = subprocess.run(
        [python, "-I", "-c", "import runner_sdk, grpc; print(runner_sdk.__file__)"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(told.stdout.strip()).is_relative_to(python.parents[1])
    # The wheel is the one that the host carries: nothing was built from sources.
    (carried,) = (installed / "host_service" / "shipped_wheels").iterdir()
    (given,) = (tmp_path / "data" / "environments" / "wheels").glob("sdk-*/*.whl")
    assert given.read_bytes() == carried.read_bytes()


def test_plugins_can_be_made_from_the_wheel(installed: Path) -> None:
    ran = _run_python(installed, "-m", "host_service", "init", "weather", "--author", "acme")
    assert ran.returncode == 0, ran.stderr
    assert (installed / "weather" / "manifest.yaml").is_file()
    assert (installed / "weather" / ".gitignore").is_file()


@pytest.mark.parametrize(
    ("language", "sources", "place"),
    [
        ("go", "**/*.go", "third_party/runmesh"),
        ("typescript", "src/**/*.ts", "vendor/runmesh-sdk"),
    ],
)
def test_installed_host_makes_a_plugin_with_the_sdk_that_it_carries(
    language: str, sources: str, place: str, installed: Path, tmp_path: Path
) -> None:
    started = (
        f"import os, runpy, sys; os.chdir({str(tmp_path)!r}); "
        f"sys.argv = ['runmesh', 'init', 'desk', '--lang', {language!r}]; "
        "runpy.run_module('host_service', run_name='__main__')"
    )
    ran = _run_python(installed, "-c", started)
    assert ran.returncode == 0, ran.stderr
    given, sdk = tmp_path / "desk" / place, ROOT / "sdk" / language
    wanted = [
        each for each in sdk.glob(sources) if not each.name.endswith(("_test.go", ".test.ts"))
    ]
    assert wanted
    for path in wanted:
        assert (given / path.relative_to(sdk)).read_bytes() == path.read_bytes()
    # What is made of the sources in a work tree does not travel.
    made = {"node_modules", "dist"}
    assert not made & {part for path in tmp_path.rglob("*") for part in path.parts}
    carried = installed / "host_service" / "shipped_sdks" / language
    assert not made & {path.name for path in carried.iterdir()}
