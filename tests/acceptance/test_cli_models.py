"""Models as operators have them: none, one by the environment, those that they add."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import CommandLine, Ran
from tests.integration.host.host_process import HostProcess
from tests.model_endpoint import ModelEndpoint, model_endpoint

_NO_MODEL = "no language model"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelEndpoint]:
    """A model that is served elsewhere, and says so."""
    script = tmp_path_factory.mktemp("endpoint") / "script.yaml"
    script.write_text(
        "rules:\n"
        "- {when: {contains: refuse}, error: {status: 401, message: no such key}}\n"
        "- {when: {regex: '^(hello|Say hello.*)$'}, answer: a real answer}\n"
    )
    with model_endpoint(script) as endpoint:
        yield endpoint


@contextmanager
def _host(data: Path, environment: Mapping[str, str] | None = None) -> Iterator[CommandLine]:
    """The command line on the data folder of a host that runs as at any first start."""
    with HostProcess(data, environment=environment, echoes=False):
        yield CommandLine(data)


def _models(host: CommandLine) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in host("models", "list", "--json").json()}


def _answered_by(host: CommandLine) -> list[str]:
    (newest,) = host("runs", "list", "--limit", "1", "--json").json()
    return [usage["model_id"] for usage in newest["usage"]]


def _done(ran: Ran) -> str:
    assert ran.status == 0, ran.err
    return ran.out


def test_a_first_start_answers_by_the_rehearsal_model_and_says_so(tmp_path: Path) -> None:
    alone = CommandLine(tmp_path / "data", echoes=False)
    first = alone.and_leaves_nothing("chat", "--with-host", sent="hello, 世界\n")
    assert first.status == 0
    assert "rehearsal model" in first.out
    assert "“hello, 世界”" in first.out
    (note,) = first.err.splitlines()
    assert _NO_MODEL in note
    assert "OPENAI_API_KEY" in note
    assert "models add" in note


def test_the_model_of_the_environment_answers_with_nothing_else_to_do(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    data = tmp_path / "data"
    environment = {"OPENAI_API_KEY": endpoint.key, "OPENAI_BASE_URL": endpoint.base_url}
    with _host(data, environment) as host:
        assert _done(host("chat", "hello")) == "a real answer\n"
        assert _answered_by(host) == ["openai"]
        models = _models(host)
        shown = _done(host("models", "list"))
        tested = _done(host("models", "test", "openai"))
    assert list(models) == ["openai"]
    assert models["openai"]["origin"] == "MODEL_ORIGIN_ENVIRONMENT"
    assert models["openai"]["model_name"] == "rehearsal"
    assert "from environment" in shown
    assert "a real answer" in tested
    kept = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert endpoint.key.encode() not in kept + (tmp_path / "data.log").read_bytes()

    with _host(data) as host:
        assert "rehearsal model" in _done(host("chat", "hello"))
        assert list(_models(host)) == ["rehearsal"]


def test_a_name_in_the_environment_is_taken_as_it_is(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    environment = {
        "OPENAI_API_KEY": endpoint.key,
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_MODEL": "chosen-by-name",
    }
    with _host(tmp_path / "data", environment) as host:
        assert _models(host)["openai"]["model_name"] == "chosen-by-name"
        assert "chosen-by-name" in _done(host("models", "test", "openai"))


def test_an_environment_that_will_not_do_is_told(alone: CommandLine) -> None:
    for variable in ("ftp://x", "http://", "nonsense"):
        ran = alone.process("up", environment={"OPENAI_BASE_URL": variable})
        assert ran.status == 1
        assert "OPENAI_BASE_URL must be an address" in ran.error_line()


def test_a_provider_that_is_away_is_told_without_the_key(tmp_path: Path) -> None:
    environment = {"OPENAI_API_KEY": "sk-secret-key", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    with _host(tmp_path / "data", environment) as host:
        ran = host("chat", "hello")
        tested = host("models", "test", "openai")
        doctor = host("doctor", "--json")
    for each in (ran, tested):
        assert each.status == 1
        assert "127.0.0.1:9" in each.err
        assert "OPENAI_MODEL" in each.err
        assert "sk-secret-key" not in each.err
    (found,) = [each for each in doctor.json() if each["area"] == "models"]
    assert (found["level"], "takes no connection" in found["told"]) == ("warning", True)
    assert "sk-secret-key" not in (tmp_path / "data.log").read_text()


def test_models_are_added_tested_and_removed(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    with _host(tmp_path / "data") as host:
        added = host(
            "models", "add", "mine", "--model", "theirs", "--base-url", endpoint.base_url,
            "--api-key-stdin", "--context-window", "8000", "--ability", "tool_calling",
            "--max-concurrency", "2", "--requests-per-minute", "600",
            "--option", "temperature=0.5", "--option", "user=me",
            sent=f"{endpoint.key}\n",
        )  # fmt: skip
        assert "model mine: created" in _done(added)
        assert "agent default: uses it from now on" in added.out
        models = _models(host)
        assert list(models) == ["mine"]
        mine = models["mine"]
        assert json.loads(mine["options_json"]) == {"temperature": 0.5, "user": "me"}
        assert (mine["has_api_key"], mine["context_window_tokens"]) == (True, 8000)
        assert (mine["max_concurrency"], mine["requests_per_minute"]) == (2, 600)
        assert "api_key" not in mine

        assert _done(host("chat", "hello")) == "a real answer\n"
        assert _answered_by(host) == ["mine"]
        tested = _done(host("models", "test", "mine"))
        for told in (
            "a real answer",
            "first token",
            "called the one it was asked for",
            "tokens in",
        ):
            assert told in tested
        (found,) = [each for each in host("doctor", "--json").json() if each["area"] == "models"]
        assert found["level"] == "ok"

        failed = host("models", "test", "mine", "--text", "refuse me")
        assert failed.status == 1
        assert "no such key" in failed.error_line()
        assert endpoint.key not in failed.err

        refused = host("models", "remove", "mine")
        assert refused.status == 1
        assert "agent 'default'" in refused.error_line()
        assert _done(host("models", "remove", "mine", "--force")) == "model mine: removed\n"
        assert list(_models(host)) == ["rehearsal"]
        assert "rehearsal model" in _done(host("chat", "hello"))
        assert host("models", "remove", "mine").status == 1


def test_a_key_is_taken_from_a_variable_and_stays_when_none_is_given(
    tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    with _host(tmp_path / "data") as host:
        add = ("models", "add", "mine", "--base-url", endpoint.base_url)
        keyed = host(*add, "--api-key-env", "MINE", environment={"MINE": endpoint.key})
        assert keyed.status == 0
        assert _done(host(*add)).startswith("model mine: unchanged\n")
        assert _done(host("chat", "hello")) == "a real answer\n"
        missing = host(*add, "--api-key-env", "NOWHERE_TO_BE_FOUND")
        assert "NOWHERE_TO_BE_FOUND" in missing.error_line()
        both = host(*add, "--api-key-env", "MINE", "--api-key-stdin")
        assert both.status == 2


def test_a_choice_of_the_operator_is_left_alone(tmp_path: Path, endpoint: ModelEndpoint) -> None:
    agents = tmp_path / "agents.yaml"
    agents.write_text(
        "models: [{id: kept, kind: chat, provider: rehearsal, model_name: rehearsal}]\n"
        "agents:\n- id: default\n  runner_id: plugin:runmesh/local-agent/default\n"
        "  config: {model: kept}\n"
    )
    with _host(tmp_path / "data") as host:
        _done(host("apply", "-f", str(agents)))
        add = ("models", "add", "mine", "--base-url", endpoint.base_url, "--api-key-stdin")
        assert "agent" not in _done(host(*add, sent=endpoint.key))
        assert "rehearsal model" in _done(host("chat", "hello"))
        assert _answered_by(host) == ["kept"]


def test_vectors_and_orders_can_be_tried_without_a_key(tmp_path: Path) -> None:
    with _host(tmp_path / "data") as host:
        for kind in ("embedding", "rerank"):
            _done(host("models", "add", kind, "--provider", "rehearsal", "--kind", kind))
        assert "dimension" in _done(host("models", "test", "embedding"))
        ranked = _done(host("models", "test", "rerank")).splitlines()
        assert "A host of agents" in next(line for line in ranked if line.startswith("0."))
        # What ranks or embeds takes nothing from the one that chats.
        assert set(_models(host)) == {"embedding", "rehearsal", "rerank"}


def test_a_script_answers_for_the_rehearsal_model(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules: [{when: {contains: hello}, answer: by the script}]")
    own = tmp_path / "own.yaml"
    own.write_text("rules: [{answer: by its own}]")
    with _host(tmp_path / "data", {"RUNMESH_REHEARSAL_SCRIPT": str(script)}) as host:
        assert _done(host("chat", "hello")) == "by the script\n"
        add = ("models", "add", "scripted", "--provider", "rehearsal")
        _done(host(*add, "--option", f"script={own}"))
        assert _done(host("chat", "hello")) == "by its own\n"
        own.write_text("rules:\n- {answers: by its own}\n")
        failed = host("models", "test", "scripted")
        assert failed.status == 1
        assert f"{own}:2: rules[0].answers: is not known" in failed.err


def test_a_script_that_will_not_do_keeps_a_host_from_starting(
    alone: CommandLine, tmp_path: Path
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules:\n- {when: {regex: '('}, answer: x}\n")
    ran = alone.process("up", "--rehearsal-script", str(script))
    assert ran.status == 1
    assert f"{script}:2: rules[0].when.regex: is no regular expression" in ran.error_line()
