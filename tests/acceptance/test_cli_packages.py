"""A plugin from nothing to an answer, to another answer, and away again, with the host running."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.commands import CommandLine, Ran, running, wait_for

AGENTS = """\
agents:
- id: weather
  runner_id: plugin:acme/weather/default
- id: second
  runner_id: plugin:acme/weather/second
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line on the data folder of a host that knows agents of a plugin to come."""
    folder = tmp_path_factory.mktemp("host")
    with running(folder / "data") as command_line:
        yield command_line


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are given in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(ran: Ran) -> str:
    assert ran.status == 0, ran.err
    return ran.out


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def sha256_of(out: str) -> str:
    match = re.search(r"^sha256 ([0-9a-f]{64})$", out, re.MULTILINE)
    assert match, out
    return match[1]


def timed(name: str, work: Callable[[], Ran], at_most_seconds: float) -> str:
    """Runs a command that must not be slow even where much else runs."""
    begun = time.monotonic()
    out = done(work())
    took = time.monotonic() - begun
    assert took < at_most_seconds, f"{name} took {took:.1f} s"
    return out


@pytest.mark.timeout(180)
def test_plugin_goes_all_the_way_and_a_broken_upgrade_leaves_what_was_there(
    host: CommandLine, workshop: Path
) -> None:
    timed("init", lambda: host("init", "weather", "--author", "acme"), 20)
    (workshop / "agents.yaml").write_text(AGENTS)
    plugin = workshop / "weather"
    at = ("--plugin", str(plugin))

    out = timed("test", lambda: host.process("test", *at), 60)
    assert "its own tests: passed (unittest)" in out
    assert "its manifest files: are what its process serves" in out
    assert " 0 failed" in out

    first = sha256_of(timed("pack", lambda: host("pack", *at), 40))
    assert sha256_of(done(host("pack", *at))) == first
    package = plugin / "weather-0.1.0.rmpkg"
    out = timed("install", lambda: host("install", str(package), "--sha256", first), 60)
    assert out == "acme/weather 0.1.0 is installed, and serves\n"
    done(host("apply", "--file", "agents.yaml"))
    assert done(host("chat", "--agent", "weather", "hello, 世界")) == "You said: hello, 世界\n"

    # An upgrade with a change, and a second runner, while somebody keeps asking.
    edit(plugin / "weather" / "default.py", "You said: ", "Heard: ")
    edit(plugin / "tests" / "test_default.py", "You said: ", "Heard: ")
    edit(plugin / "manifest.yaml", "version: 0.1.0", "version: 0.2.0")
    done(host("component", "add", "agent-runner", "second", *at))
    done(host("pack", *at))
    upgrade = ("upgrade", str(plugin / "weather-0.2.0.rmpkg"))
    answers = _asked_meanwhile(host, lambda: timed("upgrade", lambda: host.process(*upgrade), 60))
    assert set(answers) <= {"You said: x\n", "Heard: x\n"}
    assert done(host("chat", "--agent", "weather", "hi")) == "Heard: hi\n"
    assert done(host("chat", "--agent", "second", "hi")) == "You said: hi\n"
    assert "is this package already" in done(host(*upgrade))

    # Broken in its code, in its manifests, and in its tests.
    edit(plugin / "manifest.yaml", "version: 0.2.0", "version: 0.3.0")
    edit(plugin / "weather" / "default.py", "ctx.text)", "ctx.text]")
    line = host("upgrade", str(plugin)).error_line()
    assert "SyntaxError" in line
    assert line.endswith("nothing has changed")
    assert "SyntaxError" in host("pack", *at).error_line()
    edit(plugin / "weather" / "default.py", "ctx.text]", "ctx.text)")
    edit(plugin / "weather" / "main.py", "serve(Default(), Second())", "serve(Default())")
    line = host("pack", *at).error_line()
    assert "plugin:acme/weather/second is described and not served" in line
    assert host("upgrade", str(plugin)).status == 1
    assert done(host("chat", "--agent", "weather", "hi")) == "Heard: hi\n"
    [listed] = host("list", "--json").json()
    assert (listed["plugin_id"], listed["version"]) == ("acme/weather", "0.2.0")
    assert listed["source"] == upgrade[1]

    out = timed("remove", lambda: host("remove", "acme/weather"), 60)
    assert out == "acme/weather 0.2.0 is removed\n"
    instances = host("runners", "list", "--only", "instances", "--json").json()
    assert "acme/weather" not in {each["plugin_id"] for each in instances}
    assert host("list", "--json").json() == []
    assert not list((host.data / "plugins").iterdir())


def _asked_meanwhile(host: CommandLine, work: Callable[[], object]) -> list[str]:
    """What the agent answered while something was done; not one question may fail."""
    answers: list[str] = []
    failures: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            ran = host.process("chat", "--agent", "weather", "x")
            (answers if ran.status == 0 else failures).append(
                ran.out if ran.status == 0 else ran.err
            )

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        wait_for(lambda: answers or failures)
        work()
        before = len(answers)
        wait_for(lambda: len(answers) > before + 1 or failures)
    finally:
        over.set()
        asking.join()
    assert failures == []
    return answers


@pytest.mark.timeout(120)
def test_upgrade_that_breaks_only_beside_the_host_is_put_back(
    host: CommandLine, workshop: Path
) -> None:
    done(host("init", "moody", "--author", "acme"))
    plugin = workshop / "moody"
    done(host("install", str(plugin)))
    edit(plugin / "manifest.yaml", "version: 0.1.0", "version: 0.2.0")
    # Good in the trial, whose home is a temporary one, and broken under the host.
    edit(
        plugin / "moody" / "main.py",
        'if __name__ == "__main__":',
        "import os\n\n"
        "if 'plugin-homes' in os.environ['HOME']:\n    raise SystemExit('not here')\n\n"
        'if __name__ == "__main__":',
    )
    line = host("upgrade", str(plugin)).error_line()
    assert "acme/moody 0.2.0 does not run on the host" in line
    assert line.endswith("0.1.0 is back")
    [listed] = host("list", "--json").json()
    assert listed["version"] == "0.1.0"

    def old_one_serves_alone() -> bool:
        instances = host("runners", "list", "--only", "instances", "--json").json()
        mine = [each for each in instances if each["plugin_id"] == "acme/moody"]
        return [each["plugin_version"] for each in mine] == ["0.1.0"]

    wait_for(old_one_serves_alone)
    done(host("remove", "acme/moody"))


def test_signed_packages_are_all_that_a_careful_operator_installs(
    alone: CommandLine, workshop: Path
) -> None:
    alone.data.mkdir()
    (alone.data / "packages.yaml").write_text("require_signature: true\n")
    done(alone("init", "weather", "--author", "acme"))
    assert "'acme.pub'" not in done(alone("sign", "--new-key", "acme.key"))
    done(alone("pack", "--plugin", "weather", "--output", "."))
    line = alone("install", "weather-0.1.0.rmpkg").error_line()
    assert "is signed by nobody" in line
    done(alone("sign", "weather-0.1.0.rmpkg", "--key", "acme.key"))
    assert "is signed by an unknown key" in alone("install", "weather-0.1.0.rmpkg").error_line()
    (alone.data / "trusted-keys").mkdir()
    (workshop / "acme.pub").rename(alone.data / "trusted-keys" / "acme.pub")
    out = done(alone("install", "weather-0.1.0.rmpkg"))
    assert out == "acme/weather 0.1.0 is installed, signed by acme; no host is running here\n"
    assert "acme " in done(alone("list"))
    assert done(alone("remove", "acme/weather")) == "acme/weather 0.1.0 is removed\n"
    assert not (alone.data / "host.json").exists()


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("init", "Weather"), 1, "'Weather' is not a name for a plugin"),
        (("init", "weather", "--lang", "cobol"), 1, "there is no template for 'cobol'"),
        (("component", "add", "tool", "x"), 2, "'tool' is no kind of component"),
        (("component", "add", "agent-runner", "x"), 1, "is no plugin: it has no manifest.yaml"),
        (("test",), 1, "is no plugin"),
        (("pack",), 1, "is no plugin"),
        (("sign",), 2, "sign needs either FILE and --key KEY"),
        (("sign", "x.rmpkg", "--key", "k"), 1, "x.rmpkg cannot be read"),
        (("install", "x.rmpkg"), 1, "x.rmpkg is no file, folder or http address"),
        (("upgrade", "file:///x.rmpkg"), 1, "is no http or https address"),
        (("remove", "acme/weather"), 1, "acme/weather is not installed: 'runmesh list' shows"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: tuple[str, ...], status: int, told: str, alone: CommandLine, workshop: Path
) -> None:
    ran = alone(*words)
    assert ran.status == status
    assert told in ran.error_line()
