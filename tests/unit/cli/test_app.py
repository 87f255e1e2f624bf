"""The command line as a whole: help, version, usage, and failures as one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from host_service import __version__
from host_service.cli.app import run

COMMANDS = {
    "up": {
        *("--data", "--grpc", "--http", "--database", "--blobs", "--plugins", "--runner"),
        *("--config", "--insecure", "--log-level", "--advertise"),
        *("--tls-cert", "--tls-key", "--tls-client-ca", "--dev-tls"),
        *("--runner-ca", "--runner-cert", "--runner-key"),
    },
    "certs init": {"--replace", "--data"},
    "certs issue": {"NAME", "--host", "--client", "--days", "--data"},
    "certs show": {"NAME", "--json", "--data"},
    "chat": {"TEXT", "--agent", "--conversation", "--with-host", "--data", "--address"},
    "init": {"NAME", "--lang", "--author"},
    "component add": {"KIND", "NAME", "--plugin"},
    "test": {"--plugin", "--skip-conformance", "--data"},
    "pack": {"--plugin", "--output", "--sign", "--data"},
    "sign": {"FILE", "--key", "--new-key"},
    "install": {"SOURCE", "--sha256", "--data"},
    "upgrade": {"SOURCE", "--sha256", "--data"},
    "remove": {"AUTHOR/NAME", "--data"},
    "list": {"--json", "--data"},
    "conformance": {
        *("ADDRESS", "--plugin", "--runner", "--expect", "--config", "--slow-config", "--echo"),
        *("--only", "--skip", "--junit", "--json", "--list", "--insecure", "--attach"),
    },
    "apply": {"--file", "--dry-run", "--json", "--data", "--address"},
    "runs list": {
        *("--agent", "--conversation", "--status", "--limit", "--json", "--data", "--address"),
    },
    "runs show": {"RUN", "--json", "--data", "--address"},
    "runs watch": {"RUN", "--after", "--json", "--data", "--address"},
    "runs cancel": {"RUN", "--reason", "--data", "--address"},
    "runners list": {"--only", "--json", "--data", "--address"},
    "runners token": {"AUTHOR/NAME", "--lifetime", "--json", "--data", "--address"},
    "runners tokens": {"--json", "--data", "--address"},
    "runners revoke": {"TOKEN_ID", "--data", "--address"},
    "plugins build": {"FOLDER", "--offline", "--plugins", "--data"},
    "plugins environments": {"--json", "--plugins", "--data"},
    "plugins clean": {"--unused-for", "--wheels", "--plugins", "--data"},
    "agents list": {"--json", "--data", "--address", "--ca", "--cert", "--key", "--insecure"},
    "bindings list": {"--agent", "--json", "--data", "--address"},
    "models list": {"--json", "--data", "--address"},
    "tools list": {"--json", "--data", "--address"},
    "kb list": {"--json", "--data", "--address"},
    "policies list": {"--json", "--data", "--address"},
    "keys create": {
        *("--name", "--role", "--workspace", "--bot", "--expires", "--json", "--data"),
    },
    "keys list": {"--json", "--data", "--address"},
    "keys revoke": {"KEY_ID", "--data", "--address"},
    "keys show": {"--data"},
    "migrate": {"--data", "--database", "--check"},
    "dev": {
        *("--plugin", "--build", "--ignore", "--with-host", "--data", "--address", "--insecure"),
        *("--ca", "--cert", "--key"),
    },
    "purge": {
        *("--workspace", "--older-than", "--dry-run", "--json", "--data", "--database", "--blobs"),
    },
    "retention show": {"--json", "--data", "--database"},
    "retention set": {"WORKSPACE", "--max-age", "--max-items", "--data", "--database"},
    "export": {"DIR", "--json", "--data", "--database", "--blobs"},
    "import": {"DIR", "--replace", "--json", "--data", "--database", "--blobs"},
    "doctor": {
        *("--data", "--database", "--blobs", "--plugins", "--grpc", "--http", "--json"),
        *("--tls-cert", "--tls-key", "--tls-client-ca"),
    },
}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_mentions_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert f"Usage: runmesh {command}" in captured.out
    assert {name for name in COMMANDS[command] if name not in captured.out} == set()
    assert "quit-with-stdin" not in captured.out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_whole(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert {name.split()[0] for name in COMMANDS} <= set(shown.split())
    assert "..." not in shown.partition("Commands:")[2]


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"runmesh {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("nonsense", "No such command 'nonsense': see 'runmesh --help'"),
        ("runs", "Missing command: see 'runmesh runs --help'"),
        ("up --grcp x", "No such option: --grcp"),
        ("up --grpc 50051", "'--grpc' (env var: 'RUNMESH_GRPC'): '50051' is not HOST:PORT"),
        ("up --runner x", "'x' is not AUTHOR/NAME=ADDRESS"),
        ("up --log-level loud", "'loud' is not one of debug, info, warning, error"),
        ("up --plugins /does/not/exist", "'/does/not/exist' does not exist"),
        ("runs list --limit many", "'--limit': 'many' is not a whole number"),
        ("runs list --status done", "'done' is not one of accepted, queued, running, completed"),
        ("runs show", "Missing argument 'RUN'"),
        ("keys create --name n --role god", "'god' is not one of 'ingress', 'viewer', 'operator'"),
        ("keys create --name n --role viewer --expires soon", "'soon' is not a number with a unit"),
        ("runners token Help", "'Help' is not AUTHOR/NAME, in lower case"),
        ("runners token a/b --lifetime soon", "'soon' is not a number with a unit"),
        ("chat hello there", "Got unexpected extra argument(s) (there)"),
        ("chat --with-host --address 127.0.0.1:1", "--address: has no meaning with --with-host"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_is_expected(
    arguments: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("runmesh: ")
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_a_setting_can_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNMESH_GRPC", "nowhere")
    assert run(["up"]) == 2
    assert "'nowhere' is not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    ["chat hello", "runs list", "runs show r", "runs watch r", "runs cancel r", "runners list",
     "runners tokens", "runners token a/b", "runners revoke t",
     "agents list", "bindings list", "keys list", "keys revoke k",
     "keys create --name n --role viewer"],
)  # fmt: skip
def test_a_command_without_a_host_says_how_to_get_one(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments.split(), "--data", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"runmesh: no host is running on {tmp_path}: start one with 'runmesh up'\n"
    )


def test_the_local_key_is_not_sent_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "operator.key").write_text("rmk_x")
    assert run(["runs", "list", "--data", str(tmp_path), "--address", "127.0.0.1:1"]) == 1
    assert "needs a key: set RUNMESH_API_KEY" in capsys.readouterr().err


def test_a_key_does_not_travel_without_tls_unless_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNMESH_API_KEY", "rmk_x")
    assert run(["runs", "list", "--address", "198.51.100.1:1"]) == 1
    assert "without TLS" in capsys.readouterr().err


def test_a_host_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNMESH_API_KEY", "rmk_x")
    assert run(["runs", "list", "--address", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "runmesh: no host answers at 127.0.0.1:1: Connection refused\n"
    )


def test_an_unexpected_failure_is_one_line_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("host_service.cli.keys.data_folder", broken)
    assert run(["keys", "show"]) == 1
    told = capsys.readouterr().err
    assert told == (
        "runmesh: something failed that should not: ZeroDivisionError: by zero: "
        "RUNMESH_DEBUG=1 shows where\n"
    )
    monkeypatch.setenv("RUNMESH_DEBUG", "1")
    assert run(["keys", "show"]) == 1
    assert "Traceback" in capsys.readouterr().err


HEAVY = {"grpc", "google", "runmesh", "rich", "asyncio", "sqlalchemy", "yaml", "prompt_toolkit"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["runs", "list", "--help"]])
def test_what_is_asked_often_loads_nothing_heavy(arguments: list[str]) -> None:
    assert _loaded_by(arguments) & (HEAVY | {"pydantic"}) == set()


def test_a_command_loads_only_what_it_needs(tmp_path: Path) -> None:
    arguments = ["runs", "list", "--data", str(tmp_path), "--limit", "3", "--agent", "a"]
    assert _loaded_by(arguments) & {"pydantic", "sqlalchemy", "prompt_toolkit", "yaml"} == set()


def _loaded_by(arguments: list[str]) -> set[str]:
    program = (
        "import json, sys\n"
        "from host_service.cli.app import run\n"
        f"run({arguments!r})\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(ran.stdout.splitlines()[-1]))


def test_the_module_and_the_version_shortcut_agree_with_the_command(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "host_service", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert ran.stdout == f"runmesh {__version__}\n"
