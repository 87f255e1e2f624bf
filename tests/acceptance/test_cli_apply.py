"""`runmesh apply`: what a file declares is there afterwards, all of it or nothing."""

from pathlib import Path

import pytest

from tests.acceptance.commands import CommandLine

DECLARED = """\
agents:
- id: applied
  runner_id: plugin:runmesh/echo/default
  timeout: 60s
  config:
    repeat: 2
    size: 3
bindings:
- id: applied-night
  agent_id: applied
  event_types: [message.received]
  scope: {conversation_id: night}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mesh.yaml"
    path.write_text(DECLARED)
    return path


def test_what_a_file_declares_is_created_updated_and_left_alone(
    running_host: CommandLine, file: Path
) -> None:
    def kinds(*options: str) -> dict[str, str]:
        changes = running_host("apply", "-f", str(file), "--json", *options).json()
        return {change["id"]: change["kind"] for change in changes}

    assert set(kinds("--dry-run").values()) == {"CHANGE_KIND_CREATED"}
    assert "applied" not in running_host("agents", "list").out
    assert set(kinds().values()) == {"CHANGE_KIND_CREATED"}
    assert set(kinds().values()) == {"CHANGE_KIND_UNCHANGED"}
    assert running_host("chat", "x", "--conversation", "night").out == "xxxxxx\n"

    file.write_text(DECLARED.replace("repeat: 2", "repeat: 1"))
    shown = running_host("apply", "-f", str(file), "--dry-run").out
    assert "would be updated" in shown
    assert "config.repeat: 2 -> 1" in shown
    assert kinds() == {
        "applied": "CHANGE_KIND_UPDATED",
        "applied-night": "CHANGE_KIND_UNCHANGED",
    }
    assert running_host("chat", "x", "--conversation", "night").out == "xxx\n"


def test_a_file_can_come_through_a_pipe(running_host: CommandLine) -> None:
    text = "agents: [{id: piped, runner_id: plugin:runmesh/echo/default}]\n"
    assert running_host("apply", "-f", "-", sent=text).status == 0
    assert "piped" in running_host("agents", "list").out
    bad = running_host("apply", "-f", "-", sent="agents: 1\n")
    assert bad.error_line() == "standard input:1: agents: must be a list; got a single value"


def test_every_fault_of_a_file_is_told_with_its_line(running_host: CommandLine, file: Path) -> None:
    file.write_text("agents:\n- id: x\n  runner_di: y\n  enabled: yes\nbinding: []\n")
    ran = running_host("apply", "-f", str(file))
    assert ran.status == 1
    assert ran.out == ""
    assert ran.err.splitlines() == [
        f"runmesh: {file}:2: agents[0].runner_id: is required and missing",
        f"runmesh: {file}:3: agents[0].runner_di: is not known; did you mean runner_id?",
        f'runmesh: {file}:4: agents[0].enabled: YAML may read yes as true: write true, or "yes"',
        f"runmesh: {file}:5: binding: is not known; did you mean bindings?",
    ]


def test_what_the_host_finds_wrong_is_told_with_its_line_too(
    running_host: CommandLine, file: Path
) -> None:
    file.write_text("agents:\n- id: fine\n  runner_id: nonsense\n")
    ran = running_host("apply", "-f", str(file))
    assert ran.status == 1
    assert ran.error_line().startswith(f"{file}:3: agents[0].runner_id: ")
    assert "fine" not in running_host("agents", "list").out


def test_bindings_that_tie_are_refused_by_name(running_host: CommandLine, file: Path) -> None:
    one = "{id: %s, agent_id: default, event_types: [api.invoked]}"
    file.write_text(f"bindings: [{one % 'tie-a'}, {one % 'tie-b'}]\n")
    ran = running_host("apply", "-f", str(file))
    assert ran.status == 1
    line = ran.error_line()
    assert line.startswith("BINDING_CONFLICT: ")
    assert "tie-a" in line
    assert "tie-b" in line


def test_limits_belong_to_a_host(running_host: CommandLine, file: Path) -> None:
    file.write_text("limits: {active_runs: 1}\n")
    assert "runmesh up --config" in running_host("apply", "-f", str(file)).error_line()


def test_a_file_that_is_not_there_is_named(running_host: CommandLine, tmp_path: Path) -> None:
    ran = running_host("apply", "-f", str(tmp_path / "none.yaml"))
    assert (
        ran.error_line() == f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory"
    )


EVERYTHING = """\
models:
- id: small
  kind: chat
  provider: openai
  model_name: gpt-5-mini
  api_key: {env: SMALL_KEY}
  context_window_tokens: 9007199254740993
  abilities: [vision, tool_calling]
  options: {temperature: 0.10}
tool_servers:
- id: files
  command: {command: mcp-files, args: [/data], env: {LEVEL: debug, TOKEN: {env: FILES_TOKEN}}}
- id: tracker
  http:
    url: https://tracker.example/mcp
    headers: {Authorization: {env: TRACKER_TOKEN, prefix: "Bearer "}}
  enabled_tools: [search]
knowledge_bases:
- id: handbook
  embedding_model: vectors
policies:
- workspace_id: acme
  allowance: {models: [small], storage: [plugin], history_beyond_conversation: false}
  bots: [{id: b1, allowance: {tools: []}}]
  instructions: Answer in French.
  retention: {max_age: 90d, max_items_per_conversation: 1000}
keys:
- name: applied-ci
  role: ingress
  workspace_id: acme
  secret: {env: CI_KEY}
agents:
- id: applied-all
  runner_id: plugin:runmesh/echo/default
  resources: {models: [small, gone], tools: [files__read, tracker__delete]}
"""
CANARY = "canary-0d9e"
SECRETS = {
    "SMALL_KEY": f"{CANARY}-small",
    "FILES_TOKEN": f"{CANARY}-files",
    "TRACKER_TOKEN": f"{CANARY}-tracker",
    "CI_KEY": f"{CANARY}-ci-0123456789abcdef0123456789",
}


def test_everything_that_operators_keep_comes_from_one_file(
    running_host: CommandLine, file: Path
) -> None:
    file.write_text(EVERYTHING)

    def apply(*options: str, **changed: str) -> "tuple[dict[str, str], str]":
        ran = running_host("apply", "-f", str(file), *options, environment={**SECRETS, **changed})
        assert ran.status == 0, ran.err
        assert CANARY not in ran.out + ran.err
        rows = (line.split("  ") for line in ran.out.splitlines()[1:])
        kinds = {
            words[1]: words[2]
            for row in rows
            if len(words := [word.strip() for word in row if word.strip()]) == 3
        }
        return kinds, ran.out + ran.err

    ids = ["small", "files", "tracker", "handbook", "acme", "applied-all", "applied-ci"]
    assert apply("--dry-run")[0] == dict.fromkeys(ids, "would be created")
    kinds, told = apply()
    assert kinds == dict.fromkeys(ids, "created")
    for warning in (
        "agent 'applied-all' names model 'gone' in resources.models, which is not there",
        "agent 'applied-all' names tool 'tracker__delete' in resources.tools, which is not there",
        "knowledge base 'handbook' names model 'vectors' in embedding_model, which is not there",
    ):
        assert f"warning: {warning}" in told
    assert apply()[0] == dict.fromkeys(ids, "unchanged")

    kinds, told = apply("--dry-run", SMALL_KEY="another", CI_KEY=f"{CANARY}{'x' * 32}")
    updated = {name for name, kind in kinds.items() if kind == "would be updated"}
    assert updated == {"small", "applied-ci"}
    assert 'api_key: "***" -> "***" (another)' in told
    assert 'secret: "***" -> "***" (another)' in told

    models = {each["id"]: each for each in running_host("models", "list", "--json").json()}
    model = models["small"]
    assert (model["has_api_key"], "api_key" in model) == (True, False)
    assert model["context_window_tokens"] == 9007199254740993
    assert model["options_json"] == '{"temperature": 0.10}'
    servers = {each["id"]: each for each in running_host("tools", "list", "--json").json()}
    assert servers["files"]["command"]["env"] == [{"name": "LEVEL"}, {"name": "TOKEN"}]
    assert running_host("kb", "list", "--json").json()[0]["chunking"]["characters"] == 1000
    (policy,) = running_host("policies", "list", "--json").json()
    assert policy["allowance"]["models"] == {"names": ["small"]}
    assert policy["retention"]["max_age"] == "7776000s"
    for listed in ("models", "tools", "kb", "policies", "keys"):
        assert CANARY not in running_host(listed, "list").out
    assert "applied-ci" in running_host("keys", "list").out


def test_what_is_taken_out_of_a_file_leaves_the_secrets_that_are_still_named(
    running_host: CommandLine, file: Path
) -> None:
    file.write_text(
        "models: [{id: kept, kind: chat, provider: openai, model_name: m, api_key: {env: KEY}}]\n"
        "tool_servers: [{id: kept, command: {command: c, env: {LEVEL: debug, TOKEN: t}}}]\n"
    )
    assert running_host("apply", "-f", str(file), environment={"KEY": "k"}).status == 0
    file.write_text(
        "models: [{id: kept, kind: chat, provider: openai, model_name: other}]\n"
        "tool_servers: [{id: kept, command: {command: c, env: {LEVEL: info}}}]\n"
    )
    shown = running_host("apply", "-f", str(file)).out
    assert 'model_name: "m" -> "other"' in shown
    assert "api_key" not in shown
    assert 'env.TOKEN: "***" -> not set' in shown
    assert 'env.LEVEL: "***" -> "***" (another)' in shown
    models = {each["id"]: each for each in running_host("models", "list", "--json").json()}
    assert models["kept"]["has_api_key"] is True


def test_secret_stands_in_no_file_and_must_be_where_the_file_says(
    running_host: CommandLine, file: Path
) -> None:
    file.write_text(
        "models:\n"
        "- {id: a, kind: chat, provider: p, model_name: m, api_key: in-clear}\n"
        "- {id: b, kind: chat, provider: p, model_name: m, api_key: {env: NOT_THERE}}\n"
        "keys:\n"
        "- {name: k, role: viewer, secret: {env: EMPTY}}\n"
    )
    ran = running_host("apply", "-f", str(file), environment={"EMPTY": ""})
    assert ran.status == 1
    assert "in-clear" not in ran.err
    assert ran.err.splitlines() == [
        (
            f"runmesh: {file}:2: models[0].api_key: must be {{env: NAME}}, the environment "
            "variable that holds it: a file is no place for a secret"
        ),
        f"runmesh: {file}:3: models[1].api_key: the environment variable NOT_THERE is not set",
        f"runmesh: {file}:5: keys[0].secret: the environment variable EMPTY is empty",
    ]


def test_faults_of_several_objects_are_told_together(running_host: CommandLine, file: Path) -> None:
    file.write_text(
        "agents:\n"
        "- {id: one, runner_id: nonsense}\n"
        "- {id: two, runner_id: plugin:runmesh/echo/default, config: {repeat: many}}\n"
        "bindings:\n"
        "- {id: b, agent_id: nobody, event_types: [message.received]}\n"
        "- {id: c, agent_id: one, event_types: [message.received]}\n"
        "knowledge_bases:\n"
        "- {id: k, chunking: {characters: 100, overlap_characters: 100}}\n"
        "policies:\n"
        "- {workspace_id: w, retention: {max_age: 5s}}\n"
        "keys:\n"
        "- {name: short, role: viewer, secret: {env: SHORT}}\n"
    )
    ran = running_host("apply", "-f", str(file), environment={"SHORT": "canary"})
    assert ran.status == 1
    places = [line.split(": ")[1:3] for line in ran.err.splitlines()]
    assert [(place.rpartition(":")[2], field) for place, field in places] == [
        ("2", "agents[0].runner_id"),
        ("3", "agents[1].config_json.repeat"),
        ("5", "bindings[0].agent_id"),
        ("8", "knowledge_bases[0].chunking.overlap_characters"),
        ("10", "policies[0].retention.max_age"),
        ("12", "keys[0].secret"),
    ]
    assert "canary" not in ran.err
