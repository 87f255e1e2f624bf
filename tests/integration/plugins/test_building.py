"""The environments of plugins: real installers, tiny wheels, a registry on loopback."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_service.environments import BuildFailed, Environment, EnvironmentShelf, build, installers
from host_service.environments.installers import Installer, choose_installer
from host_service.environments.requirements import file_digest
from tests.integration.plugins.python_plugins import write_python_plugin
from tests.integration.plugins.wheels import LocalRegistry, local_registry, write_wheel

# A registry that nobody serves: who asks it is told no at once.
NOWHERE = "http://127.0.0.1:9/simple/"
UNREACHABLE = {
    "PIP_INDEX_URL": NOWHERE,
    "PIP_RETRIES": "0",
    "UV_DEFAULT_INDEX": NOWHERE,
    "UV_HTTP_RETRIES": "0",
}

MakeInstaller = Callable[..., Installer]


@pytest.fixture(scope="module")
def hosts_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels that every data folder has after its first build: made once."""
    plugin = write_python_plugin(tmp_path_factory.mktemp("first") / "desk", "shade\n")
    write_wheel(plugin / "wheels", "shade", "1.0")
    data = tmp_path_factory.mktemp("data")
    asyncio.run(build(plugin, data, offline=True))
    return data / "environments" / "wheels"


@pytest.fixture
def data(tmp_path: Path, hosts_wheels: Path) -> Path:
    """A data folder."""
    wheels = tmp_path / "data" / "environments" / "wheels"
    for folder in ("host", *(each.name for each in hosts_wheels.glob("sdk-*"))):
        shutil.copytree(hosts_wheels / folder, wheels / folder, copy_function=os.link)
    return tmp_path / "data"


@pytest.fixture(params=["uv", "pip"])
def make_installer(request: pytest.FixtureRequest, data: Path) -> MakeInstaller:
    """Makes the installer that a test is about, with what the environment says of registries."""

    def make(variables: dict[str, str] | None = None) -> Installer:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        chosen = {"RUNMESH_INSTALLER": request.param, **UNREACHABLE, **(variables or {})}
        return choose_installer(data / "environments" / "wheels", {**kept, **chosen})

    return make


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[LocalRegistry]:
    """A registry with two versions of one library, and one that needs it."""
    folder = tmp_path / "registry"
    write_wheel(folder, "shade", "1.0")
    write_wheel(folder, "shade", "2.0")
    write_wheel(folder, "lamp", "1.0", requires=["shade<2"])
    with local_registry(folder) as served:
        yield served


def asked_of(environment: Environment, expression: str, *, of: str = "shade") -> str:
    """What an expression comes to in an environment."""
    command = [str(environment.python), "-I", "-c", f"import {of}; print({expression})"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def left_in(data: Path) -> set[str]:
    """What there is of environments, whole or not."""
    names = {each.name for each in (data / "environments").iterdir()}
    return names - {"wheels", "lock"}


async def test_wheels_that_a_plugin_brings_need_no_registry(
    tmp_path: Path, data: Path, make_installer: MakeInstaller
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "shade>=1  # a comment\n")
    write_wheel(plugin / "wheels", "shade", "1.5", commands={"shade": "shade:main"})
    lines: list[str] = []
    made = await build(plugin, data, lines.append, offline=True, installer=make_installer())
    assert asked_of(made, "shade.VERSION") == "1.5"
    assert any("shade" in line for line in lines)
    assert left_in(data) == {made.key}
    assert (data / "environments").stat().st_mode & 0o777 == 0o700
    # A command of a library names the interpreter where that is now.
    assert made.folder is not None
    first_lines = (made.folder / "bin" / "shade").read_text().split("\n")[:2]
    assert str(made.python) in " ".join(first_lines)


async def test_host_without_pip_gives_each_environment_its_own(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers, "_host_has_pip", lambda: False)
    plugin = write_python_plugin(tmp_path / "desk", "shade\n")
    write_wheel(plugin / "wheels", "shade", "1.5")
    host = {"PATH": os.environ["PATH"], "RUNMESH_INSTALLER": "pip", **UNREACHABLE}
    installer = choose_installer(data / "environments" / "wheels", host)
    made = await build(plugin, data, offline=True, installer=installer)
    assert asked_of(made, "shade.VERSION") == "1.5"


async def test_two_plugins_have_two_versions_of_one_library(
    tmp_path: Path, data: Path, make_installer: MakeInstaller, registry: LocalRegistry
) -> None:
    old = write_python_plugin(tmp_path / "old", "shade==1.0\n")
    new = write_python_plugin(tmp_path / "new", "shade==2.0\n")
    installer = make_installer(registry.variables())
    made = [await build(each, data, installer=installer) for each in (old, new)]
    assert [asked_of(each, "shade.VERSION") for each in made] == ["1.0", "2.0"]
    assert left_in(data) == {each.key for each in made}


async def test_what_came_from_the_registry_once_is_enough_for_builds_without_it(
    tmp_path: Path, data: Path, make_installer: MakeInstaller, registry: LocalRegistry
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "lamp\n")
    lines: list[str] = []
    made = await build(plugin, data, lines.append, installer=make_installer(registry.variables()))
    assert "not all of it is here: asking the registry" in lines
    assert asked_of(made, "shade.VERSION") == "1.0"
    assert made.folder is not None
    shutil.rmtree(made.folder)
    registry.asked.clear()
    again = await build(plugin, data, offline=True, installer=make_installer(registry.variables()))
    assert again == made
    assert asked_of(again, "shade.VERSION") == "1.0"
    assert registry.asked == []


async def test_what_is_here_is_not_asked_of_the_registry(
    tmp_path: Path, data: Path, make_installer: MakeInstaller, registry: LocalRegistry
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "shade\n")
    write_wheel(plugin / "wheels", "shade", "1.5")
    made = await build(plugin, data, installer=make_installer(registry.variables()))
    assert asked_of(made, "shade.VERSION") == "1.5"
    assert registry.asked == []


async def test_wheel_of_one_plugin_is_never_given_to_another(
    tmp_path: Path, data: Path, make_installer: MakeInstaller, registry: LocalRegistry
) -> None:
    hostile = write_python_plugin(tmp_path / "hostile", "shade\nlamp\n")
    write_wheel(hostile / "wheels", "shade", "1.5", files={"shade.py": "VERSION = 'evil'\n"})
    honest = write_python_plugin(tmp_path / "honest", "shade<2\n")
    installer = make_installer(registry.variables())
    first = await build(hostile, data, installer=installer)
    assert asked_of(first, "shade.VERSION") == "evil"
    second = await build(honest, data, installer=installer)
    assert asked_of(second, "shade.VERSION") == "1.0"


async def test_no_registry_can_put_its_own_sdk_in_the_place_of_the_hosts(
    tmp_path: Path, data: Path, make_installer: MakeInstaller, registry: LocalRegistry
) -> None:
    write_wheel(registry.folder, "runmesh_sdk", "99.0", files={"runner_sdk.py": "evil = True\n"})
    plugin = write_python_plugin(tmp_path / "desk", "runmesh-sdk\nshade==1.0\n")
    made = await build(plugin, data, installer=make_installer(registry.variables()))
    versions = "__import__('importlib.metadata').metadata.version('runmesh-sdk')"
    assert asked_of(made, versions) == "0.1.0"
    with pytest.raises(BuildFailed, match=r"runmesh[-_]sdk"):
        await build(
            write_python_plugin(tmp_path / "fooled", "runmesh-sdk>=99\n"),
            data,
            installer=make_installer(registry.variables()),
        )


async def test_pinned_hashes_are_held(
    tmp_path: Path, data: Path, make_installer: MakeInstaller, registry: LocalRegistry
) -> None:
    digest = file_digest(registry.folder / "shade-1.0-py3-none-any.whl")
    pinned = f"shade==1.0 \\\n    --hash=sha256:{digest}\n"
    installer = make_installer(registry.variables())
    made = await build(write_python_plugin(tmp_path / "good", pinned), data, installer=installer)
    assert asked_of(made, "shade.VERSION") == "1.0"
    wrong = pinned.replace(digest, "0" * 64)
    with pytest.raises(BuildFailed, match=r"(?i)hash"):
        await build(write_python_plugin(tmp_path / "bad", wrong), data, installer=installer)


async def test_pinned_hashes_of_all_but_the_sdk_are_enough(
    tmp_path: Path, data: Path, make_installer: MakeInstaller
) -> None:
    needed = []
    for wheel in (data / "environments" / "wheels" / "host").glob("*.whl"):
        name, version = wheel.name.split("-")[:2]
        needed.append(f"{name}=={version} --hash=sha256:{file_digest(wheel)}\n")
    plugin = write_python_plugin(tmp_path / "desk", f"runmesh-sdk==0.1.0\n{''.join(needed)}")
    made = await build(plugin, data, offline=True, installer=make_installer())
    assert asked_of(made, "runner_sdk.__version__", of="runner_sdk") == "0.1.0"


async def test_build_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, data: Path, make_installer: MakeInstaller, registry: LocalRegistry
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "no-such-library==1.2.3\n")
    with pytest.raises(BuildFailed) as failed:
        await build(plugin, data, installer=make_installer(registry.variables()))
    assert "no-such-library" in failed.value.tail
    with pytest.raises(BuildFailed, match="from the wheels that are here"):
        await build(plugin, data, offline=True, installer=make_installer())
    conflicting = write_python_plugin(tmp_path / "torn", "shade==2.0\nlamp==1.0\n")
    with pytest.raises(BuildFailed, match="shade"):
        await build(conflicting, data, installer=make_installer(registry.variables()))
    assert left_in(data) == set()


async def test_registry_that_cannot_be_reached_is_told(
    tmp_path: Path, data: Path, make_installer: MakeInstaller
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "shade\n")
    with pytest.raises(BuildFailed) as failed:
        await build(plugin, data, installer=make_installer())
    assert failed.value.tail
    assert left_in(data) == set()


async def test_broken_wheel_is_refused_and_leaves_nothing(
    tmp_path: Path, data: Path, make_installer: MakeInstaller
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "shade\n")
    (plugin / "wheels").mkdir()
    (plugin / "wheels" / "shade-1.0-py3-none-any.whl").write_bytes(b"this is no zip file")
    with pytest.raises(BuildFailed) as failed:
        await build(plugin, data, offline=True, installer=make_installer())
    assert "shade" in str(failed.value)
    assert left_in(data) == set()


async def test_builders_at_once_make_one_whole_environment(
    tmp_path: Path, data: Path, make_installer: MakeInstaller
) -> None:
    plugins = [write_python_plugin(tmp_path / f"desk{each}", "shade\n") for each in range(3)]
    for plugin in plugins:
        write_wheel(plugin / "wheels", "shade", "1.0")
    made = await asyncio.gather(
        *(build(each, data, offline=True, installer=make_installer()) for each in plugins)
    )
    # Equal requirements, and wheels of equal content: one environment for all three.
    assert len(set(made)) == 1
    assert left_in(data) == {made[0].key}
    assert asked_of(made[0], "shade.VERSION") == "1.0"


async def test_environment_that_is_there_is_not_built_again(
    tmp_path: Path, data: Path, make_installer: MakeInstaller
) -> None:
    first = write_python_plugin(tmp_path / "one", "shade\n")
    second = write_python_plugin(tmp_path / "two", "# the same, said otherwise\n\n shade \n")
    for plugin in (first, second):
        write_wheel(plugin / "wheels", "shade", "1.0")
    made = await build(first, data, offline=True, installer=make_installer())
    lines: list[str] = []
    assert await build(second, data, lines.append, offline=True) == made
    assert lines == []


BUILD_FOR_EVER = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from host_service.environments import building, build

    async def never(self, *_arguments, **_options):
        from host_service.environments.process import run_installer
        script = "echo at work; sleep 600 & sleep 600"
        return await run_installer(
            ["/bin/sh", "-c", script], folder=self._workshop, environment={"PATH": "/bin"},
            on_line=lambda line: print(line, flush=True),
        )

    building._Builder._install = never
    asyncio.run(build(Path(sys.argv[1]), Path(sys.argv[2]), offline=True))
    """
)


def test_builder_that_is_killed_leaves_nothing_that_is_taken_for_an_environment(
    tmp_path: Path, data: Path
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "shade\n")
    write_wheel(plugin / "wheels", "shade", "1.0")
    command = [sys.executable, "-c", BUILD_FOR_EVER, str(plugin), str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "at work\n"
        (workshop,) = [name for name in left_in(data) if name.startswith(".build-")]
        builder.kill()
        # Ends when the last process that has it open does: the installer and what that started.
        assert builder.stdout.read() == ""
    shelf = EnvironmentShelf(data)
    assert not shelf.find(shelf.read(plugin)).is_ready
    assert shelf.kept() == []
    made = asyncio.run(build(plugin, data, offline=True))
    assert left_in(data) == {made.key}
    assert workshop not in left_in(data)


def test_interrupted_builder_ends_its_installer_and_leaves_nothing(
    tmp_path: Path, data: Path
) -> None:
    plugin = write_python_plugin(tmp_path / "desk", "shade\n")
    write_wheel(plugin / "wheels", "shade", "1.0")
    command = [sys.executable, "-c", BUILD_FOR_EVER, str(plugin), str(data)]
    started = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "at work\n"
        builder.send_signal(signal.SIGINT)
        assert builder.stdout.read() == ""
    assert left_in(data) == set()
    assert time.monotonic() - started < 20
