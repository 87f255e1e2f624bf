"""`runmesh dev`: a line is edited, and the next answer is the new one."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.commands import RUNMESH, CommandLine, running, wait_for

# Generous: a machine that runs tests is busy. What is usual is in docs/plugins.md.
_SOON_SECONDS = 5.0

MANIFEST = """\
apiVersion: runmesh/v1
kind: Plugin
metadata: {{ author: acme, name: {name}, version: 0.1.0 }}
run:
  {run}
components: [default.yaml]
"""
COMPONENT = """\
apiVersion: runmesh/v1
kind: AgentRunner
metadata: { name: default, label: { en_US: Default } }
capabilities: { streaming: true }
"""
RUNNER = """\
import asyncio
import sys

from runner_sdk import RunContext, agent_runner, serve


@agent_runner
async def default(ctx: RunContext):
    yield ctx.delta("ANSWER")
    if ctx.text == "wait":
        await asyncio.sleep(300)
    if ctx.text == "crash":
        sys.stderr.flush()
        import os
        os._exit(7)


if __name__ == "__main__":
    serve(default)
"""
# Listens as a plugin in a language does that knows nothing of attaching.
LISTENER = """\
#!/bin/sh
unset RUNMESH_ATTACH RUNMESH_ATTACH_TOKEN
exec "{python}" -u -m built.main
"""


def make_plugin(folder: Path, name: str, answer: str, *, run: str = "") -> Path:
    """Makes a plugin that needs no environment of its own."""
    folder.mkdir(parents=True)
    run = run or "python: { module: main }"
    (folder / "manifest.yaml").write_text(MANIFEST.format(name=name, run=run))
    (folder / "default.yaml").write_text(COMPONENT)
    (folder / "main.py").write_text(RUNNER.replace("ANSWER", answer))
    return folder


class Development:
    """A `runmesh dev` that runs.

    Attributes:
        process: Its process.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log
        self._seen = 0

    @property
    def log(self) -> str:
        """All that it has shown."""
        return self._log.read_text("utf-8")

    def wait_for(self, *texts: str) -> str:
        """Waits until it has shown texts that it had not before, and returns all since then."""
        started_at = self._seen

        def is_there() -> bool:
            new = self.log[started_at:]
            assert self.process.poll() is None, new
            return all(text in new for text in texts)

        try:
            wait_for(is_there)
        except AssertionError as error:
            raise AssertionError(f"{texts} in {self.log[started_at:]!r}") from error
        shown = self.log[started_at:]
        self._seen += len(shown)
        return shown


@contextmanager
def developing(host: CommandLine, folder: Path, *arguments: str) -> Iterator[Development]:
    """Runs `runmesh dev` in a plugin's folder, and ends it as Ctrl-C does."""
    log = folder.with_name(f"{folder.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [RUNMESH, "dev", *arguments], cwd=folder, env=host.environment(),
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield Development(process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) in {0, 1, -signal.SIGKILL}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A host with a released plugin, `acme/forecast`."""
    folder = tmp_path_factory.mktemp("dev")
    make_plugin(folder / "plugins" / "forecast", "forecast", "released")
    configuration = folder / "agents.yaml"
    agent = {"id": "forecast", "runner_id": "plugin:acme/forecast/default"}
    configuration.write_text(json.dumps({"agents": [agent]}))
    with running(
        folder / "data", "--plugins", str(folder / "plugins"), "--config", str(configuration)
    ) as command_line:
        yield command_line


def ask(host: CommandLine, agent: str, text: str = "hello") -> str:
    ran = host("chat", "--agent", agent, text)
    assert ran.status == 0, ran.err
    return ran.out.strip()


def seconds_until_answer(host: CommandLine, agent: str, wanted: str) -> float:
    began_at = time.monotonic()
    while ask(host, agent) != wanted:
        assert time.monotonic() - began_at < 20
    return time.monotonic() - began_at


def processes_of(folder: Path) -> list[int]:
    """The processes whose working directory is a plugin's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == folder:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_the_new_answer_comes_soon_after_a_line_was_edited(
    host: CommandLine, tmp_path: Path
) -> None:
    made = subprocess.run(
        [RUNMESH, "init", "weather", "--lang", "python", "--author", "acme"],
        check=False, cwd=tmp_path, env=host.environment(), capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "weather"
    source = folder / "weather" / "default.py"
    with developing(host, folder) as dev:
        shown = dev.wait_for("runmesh chat --agent weather")
        assert "acme/weather is attached, after" in shown
        assert ask(host, "weather", "rain") == "You said: rain"
        took = []
        for number in range(3):
            # The one that stands by is not ready in the moment after a start.
            time.sleep(1.0)
            text = re.sub(r'delta\(".*"\)', f'delta("Number {number}")', source.read_text())
            new = source.with_suffix(".new")
            new.write_text(text)
            new.replace(source)
            took.append(seconds_until_answer(host, "weather", f"Number {number}hello"))
            dev.wait_for("default.py changed: starting again", "acme/weather is attached, after")
    assert min(took) < _SOON_SECONDS


def test_a_development_instance_takes_the_runs_of_the_others_and_gives_them_back(
    host: CommandLine, tmp_path: Path
) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "in the works")
    assert ask(host, "forecast") == "released"
    with developing(host, folder) as dev:
        dev.wait_for("acme/forecast is attached, after")
        assert {ask(host, "forecast") for _ in range(5)} == {"in the works"}
        listed = host("runners", "list", "--json", "--only", "instances").json()
        [mine] = [each for each in listed if each.get("development")]
        assert (mine["plugin_id"], mine["found_by"]) == ("acme/forecast", "attached")
        # The command, the plugin's process, and the one that stands by.
        wait_for(lambda: len(processes_of(folder)) == 3)

        dev.process.send_signal(signal.SIGINT)
        assert dev.process.wait(10) == 0
        assert ask(host, "forecast") == "released"
        tokens = host("runners", "tokens", "--json").json()
        mine = [each for each in tokens if each["plugin_id"] == "acme/forecast"]
        assert mine
        assert all(each["revoked_at"] for each in mine)
    assert processes_of(folder) == []
    listed = host("runners", "list", "--json", "--only", "instances").json()
    assert [each for each in listed if each.get("development")] == []


def test_a_run_under_way_ends_with_an_error_that_says_why(
    host: CommandLine, tmp_path: Path
) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "first")
    with developing(host, folder) as dev:
        dev.wait_for("acme/forecast is attached, after")
        with host.started("chat", "--agent", "forecast", "wait") as chat:
            assert chat.stdout is not None
            assert chat.stdout.read(5) == b"first"
            saved_at = time.monotonic()
            make = (folder / "main.py").read_text().replace("first", "second")
            (folder / "main.py").write_text(make)
            _, told = chat.communicate(timeout=20)
            assert time.monotonic() - saved_at < _SOON_SECONDS
        assert chat.returncode == 1
        assert "the development instance was reloaded" in told.decode()
        dev.wait_for("main.py changed: starting again", "acme/forecast is attached, after")
        assert ask(host, "forecast") == "second"


def test_a_mistake_shows_its_traceback_and_the_next_change_mends_it(
    host: CommandLine, tmp_path: Path
) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "right")
    right = (folder / "main.py").read_text()
    with developing(host, folder) as dev:
        dev.wait_for("acme/forecast is attached, after")
        (folder / "main.py").write_text(f"{right}\ndef wrong(:\n")
        shown = dev.wait_for("SyntaxError: invalid syntax", "waiting for a change")
        assert f'acme/forecast:   File "{folder / "main.py"}", line' in shown
        assert "exited with code 1 before it had attached" in shown
        # Nobody works on what cannot start: the others have its runs meanwhile.
        assert ask(host, "forecast") == "released"
        (folder / "main.py").write_text(right)
        dev.wait_for("acme/forecast is attached, after")
        assert ask(host, "forecast") == "right"

        manifest = (folder / "manifest.yaml").read_text()
        (folder / "manifest.yaml").write_text(manifest.replace("kind: Plugin", "kind: Plug"))
        dev.wait_for("kind must be Plugin, got 'Plug'", "waiting for a change")
        (folder / "manifest.yaml").write_text(manifest)
        dev.wait_for("acme/forecast is attached, after")


def test_a_line_that_is_edited_twice_in_one_second_counts_twice(
    host: CommandLine, tmp_path: Path
) -> None:
    # Python takes compiled code to be that of a source with the same size and second.
    folder = make_plugin(tmp_path / "forecast", "forecast", "zero")
    (folder / "words.py").write_text("WORD = 'zero'\n")
    main = (folder / "main.py").read_text()
    (folder / "main.py").write_text(
        main.replace('"zero"', "WORD").replace(
            "import sys\n", "import sys\n\nfrom words import WORD\n"
        )
    )
    second = int(time.time()) * 10**9
    with developing(host, folder) as dev:
        dev.wait_for("acme/forecast is attached, after")
        for number, word in enumerate(("once", "then")):
            new = folder / ".words.new"
            new.write_text(f"WORD = '{word}'\n")
            os.utime(new, ns=(second, second + number))
            new.replace(folder / "words.py")
            dev.wait_for("words.py changed", "acme/forecast is attached, after")
            assert ask(host, "forecast") == word


def test_what_crashes_in_the_middle_of_a_run_is_started_again(
    host: CommandLine, tmp_path: Path
) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "here")
    with developing(host, folder) as dev:
        dev.wait_for("acme/forecast is attached, after")
        assert host("chat", "--agent", "forecast", "crash").status == 1
        dev.wait_for("exited with code 7: starting again", "acme/forecast is attached, after")
        assert ask(host, "forecast") == "here"


def test_a_plugin_that_only_listens_is_built_and_attached_for(
    host: CommandLine, tmp_path: Path
) -> None:
    run = 'command: ["./listen"]'
    folder = make_plugin(tmp_path / "go-like", "go-like", "one", run=run)
    (folder / "listen").write_text(LISTENER.format(python=sys.executable))
    (folder / "listen").chmod(0o755)
    build = "test ! -e broken && mkdir -p build && cp main.py build/ && ln -sfn build built"
    with developing(host, folder, "--build", build) as dev:
        dev.wait_for("acme/go-like is attached, after")
        assert ask(host, "go-like") == "one"
        # More than one result's credit, and many at once.
        answers: list[str] = []
        asking = [
            threading.Thread(
                target=lambda: answers.append(host.process("chat", "--agent", "go-like", "x").out)
            )
            for _ in range(4)
        ]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
        assert answers == ["one\n"] * 4

        (folder / "broken").touch()
        dev.wait_for("broken changed", "ended with status 1", "waiting for a change")
        (folder / "main.py").write_text((folder / "main.py").read_text().replace("one", "two"))
        (folder / "broken").unlink()
        dev.wait_for("acme/go-like is attached, after")
        assert ask(host, "go-like") == "two"

        with host.started("chat", "--agent", "go-like", "wait") as chat:
            assert chat.stdout is not None
            assert chat.stdout.read(3) == b"two"
            (folder / "main.py").touch()
            _, told = chat.communicate(timeout=20)
        assert chat.returncode == 1
        assert "the development instance was reloaded" in told.decode()
    assert processes_of(folder) == []


def test_what_the_plugin_prints_is_shown_with_its_name_and_breaks_nothing(
    host: CommandLine, tmp_path: Path
) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "here")
    text = (folder / "main.py").read_text()
    loud = "import os\nos.write(1, b'odd \\xff\\x1b[2J bytes\\n')\nprint('世界 👋')\n"
    (folder / "main.py").write_text(loud + text)
    with developing(host, folder) as dev:
        shown = dev.wait_for("acme/forecast is attached, after")
        assert "acme/forecast: odd \ufffd bytes\n" in shown
        assert "acme/forecast: 世界 👋\n" in shown


def test_a_killed_dev_leaves_no_process_behind(host: CommandLine, tmp_path: Path) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "here")
    with developing(host, folder) as dev:
        dev.wait_for("acme/forecast is attached, after")
        wait_for(lambda: len(processes_of(folder)) == 3)
        dev.process.kill()
        dev.process.wait()
        wait_for(lambda: processes_of(folder) == [], seconds=5)
    wait_for(lambda: ask(host, "forecast") == "released", seconds=5)


def test_without_a_host_or_a_plugin_it_says_what_to_do(
    alone: CommandLine, host: CommandLine, tmp_path: Path
) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "here")
    line = alone("dev", "--plugin", str(folder)).error_line()
    assert "no host is running" in line
    assert "start one with 'runmesh up'" in line
    line = host("dev", "--plugin", str(tmp_path)).error_line()
    assert "there is no manifest.yaml" in line
    assert "'runmesh init NAME' makes one" in line
    made = host("keys", "create", "--name", "eyes", "--role", "viewer", "--json").json()
    refused = host("dev", "--plugin", str(folder), environment={"RUNMESH_API_KEY": made["secret"]})
    assert refused.status == 1
    assert "UNAUTHORIZED" in refused.err


def test_it_can_bring_a_host_of_its_own(alone: CommandLine, tmp_path: Path) -> None:
    folder = make_plugin(tmp_path / "forecast", "forecast", "here")
    with developing(alone, folder, "--with-host") as dev:
        dev.wait_for("runmesh chat --agent forecast")
        assert ask(alone, "forecast") == "here"
    assert not (alone.data / "host.json").exists()
