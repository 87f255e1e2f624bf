"""`runmesh keys`: keys are made once, do what their role says, and stop when revoked."""

import re

from tests.acceptance.commands import CommandLine, Ran


def with_key(command_line: CommandLine, key: str, *arguments: str) -> Ran:
    return command_line(*arguments, environment={"RUNMESH_API_KEY": key})


def test_a_key_is_printed_once_and_works_until_it_is_revoked(running_host: CommandLine) -> None:
    made = running_host("keys", "create", "--name", "app", "--role", "ingress")
    assert made.status == 0
    assert re.fullmatch(r"rmk_[A-Za-z0-9_-]{43}\n", made.out)
    key = made.out.strip()
    key_id = made.err.split()[1]
    assert with_key(running_host, key, "chat", "hello").out == "hello\n"

    listed = running_host("keys", "list", "--json").json()
    [mine] = [each for each in listed if each["key_id"] == key_id]
    assert (mine["name"], mine["role"]) == ("app", "ROLE_INGRESS")
    assert key not in running_host("keys", "list", "--json").out
    assert key_id in running_host("keys", "list").out

    revoked = running_host("keys", "revoke", key_id)
    assert revoked.out == f"key {key_id} (app) is revoked\n"
    refused = with_key(running_host, key, "chat", "hello")
    assert refused.status == 1
    line = refused.error_line()
    assert line.startswith("UNAUTHENTICATED: ")
    assert key not in line


def test_a_role_that_is_not_enough_is_told(running_host: CommandLine) -> None:
    made = running_host("keys", "create", "--name", "eyes", "--role", "viewer", "--json").json()
    key = made["secret"]
    assert made["key"]["role"] == "ROLE_VIEWER"
    assert with_key(running_host, key, "runs", "list", "--limit", "1").status == 0
    refused = with_key(running_host, key, "chat", "hello")
    assert refused.status == 1
    assert refused.error_line().startswith("UNAUTHORIZED: ")


def test_a_key_can_expire_and_be_limited(running_host: CommandLine) -> None:
    made = running_host(
        "keys", "create", "--name", "guest", "--role", "ingress", "--expires", "90d",
        "--workspace", "w", "--bot", "b", "--json",
    ).json()["key"]  # fmt: skip
    assert (made["workspace_id"], made["bot_id"]) == ("w", "b")
    assert made["expires_at"] > made["created_at"]
    row = next(line for line in running_host("keys", "list").out.splitlines() if "guest" in line)
    assert "workspace w, bot b" in row
    assert "until " in row


def test_the_operator_key_is_shown_without_a_host(running_host: CommandLine) -> None:
    shown = running_host("keys", "show").out
    assert shown == (running_host.data / "operator.key").read_text()


def test_a_key_that_is_not_there_is_named(running_host: CommandLine) -> None:
    ran = running_host("keys", "revoke", "no-such-key")
    assert ran.status == 1
    assert ran.error_line().endswith("'runmesh keys list' shows the keys")


def test_a_wrong_key_is_refused_without_being_repeated(running_host: CommandLine) -> None:
    wrong = "rmk_" + "A" * 43
    refused = with_key(running_host, wrong, "runs", "list")
    assert refused.status == 1
    assert wrong not in refused.err
    line = refused.error_line()
    assert "RUNMESH_API_KEY" in line
    odd = with_key(running_host, "rmk_\u4e16\u754c", "runs", "list").error_line()
    assert "RUNMESH_API_KEY" in odd
