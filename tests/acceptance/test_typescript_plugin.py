"""A plugin in TypeScript, from nothing to an answer, and worked on with `runmesh dev`."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.commands import RUNMESH, CommandLine, running, wait_for
from tests.acceptance.test_dev import ask, developing
from tests.acceptance.test_go_plugin import edit, ran
from tests.toolchains import require_tool

_BUILD_SECONDS = 300


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line on the data folder of a host that runs."""
    with running(tmp_path_factory.mktemp("typescript") / "data") as command_line:
        yield command_line


@pytest.fixture
def plugin(host: CommandLine, tmp_path: Path) -> Path:
    """A new plugin in TypeScript, acme/weather."""
    require_tool("node")
    require_tool("npm")
    ran(host, tmp_path, "init", "weather", "--lang", "typescript", "--author", "acme")
    return tmp_path / "weather"


@pytest.mark.timeout(2 * _BUILD_SECONDS)
def test_new_plugin_is_tested_packed_installed_and_asked(
    host: CommandLine, plugin: Path, tmp_path: Path
) -> None:
    ran(host, plugin, "component", "add", "agent-runner", "second-opinion")
    told = ran(host, plugin, "test")
    assert "its own tests: passed (node --test dist/*.test.js)" in told
    assert "# pass 2" in told
    assert "its manifest files: are what its process serves" in told
    assert " 0 failed" in told

    edit(plugin / "src" / "second-opinion.test.ts", "You said: hello", "You say: hello")
    failed = subprocess.run(
        [RUNMESH, "test"], cwd=plugin, env=host.environment(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False,
    )  # fmt: skip
    assert failed.returncode == 1
    assert "You said: hello, 世界" in failed.stdout

    # What is packed is what was built from the sources as they are now.
    edit(plugin / "src" / "default.ts", "You said: ", "Heard: ")
    told = ran(host, plugin, "pack")
    assert told.startswith("weather-0.1.0.rmpkg\nsha256 ")
    # The compiler is ten times as large as all that runs.
    assert (plugin / "weather-0.1.0.rmpkg").stat().st_size < 5_000_000
    told = ran(host, tmp_path, "install", str(plugin / "weather-0.1.0.rmpkg"))
    assert told == "acme/weather 0.1.0 is installed, and serves\n"
    (tmp_path / "agents.yaml").write_text(
        "agents:\n"
        "- {id: weather, runner_id: plugin:acme/weather/default}\n"
        "- {id: second, runner_id: plugin:acme/weather/second-opinion}\n"
    )
    ran(host, tmp_path, "apply", "--file", "agents.yaml")
    assert ask(host, "weather", "hi, 世界") == "Heard: hi, 世界"
    assert ask(host, "second", "hi") == "You said: hi"
    ran(host, tmp_path, "remove", "acme/weather")


@pytest.mark.timeout(2 * _BUILD_SECONDS)
def test_saved_file_is_compiled_and_answers_and_a_mistake_is_shown(
    host: CommandLine, plugin: Path
) -> None:
    # The first time modules are fetched, which takes longer than what the waits below allow.
    subprocess.run(["npm", "install", "--silent"], cwd=plugin, check=True, timeout=_BUILD_SECONDS)
    source = plugin / "src" / "default.ts"
    with developing(host, plugin) as dev:
        dev.wait_for("acme/weather is attached, after", "runmesh chat --agent weather")
        # By itself: what attaches others for them does not say so.
        assert "acme/weather: acme/weather is attached to " in dev.log
        assert ask(host, "weather", "rain") == "You said: rain"

        edit(source, "You said: ", "Heard: ")
        dev.wait_for("default.ts changed: starting again", "acme/weather is attached, after")
        assert ask(host, "weather", "rain") == "Heard: rain"

        edit(source, "run.text", "run.words")
        dev.wait_for("Property 'words' does not exist", "waiting for a change")
        edit(source, "run.words", "run.text")
        dev.wait_for("acme/weather is attached, after")

        waits = (
            '  yield delta("first");\n'
            '  await new Promise((resolve) => run.signal.addEventListener("abort", resolve));\n'
        )
        edit(source, '  yield delta("Heard: ");\n', waits)
        dev.wait_for("acme/weather is attached, after")
        with host.started("chat", "--agent", "weather", "wait") as chat:
            assert chat.stdout is not None
            assert chat.stdout.read(5) == b"first"
            edit(source, waits, '  yield delta("Once more: ");\n')
            _, told = chat.communicate(timeout=30)
        assert chat.returncode == 1
        assert "the development instance was reloaded" in told.decode()
        dev.wait_for("acme/weather is attached, after")
        wait_for(lambda: ask(host, "weather", "rain") == "Once more: rain")
