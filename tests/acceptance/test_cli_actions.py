"""`runmesh actions`: what a run asked for is listed, shown, approved and rejected by a person."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import CommandLine
from tests.integration.host.calls import END, calling, say, scripted
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin

TARGET = '{"queue": 9223372036854775809}'
_CONFIG = """\
agents:
- id: default
  runner_id: plugin:acme/scripted/default
  resources: {platform_actions: [ticket.create]}
webhooks:
- {action: ticket.create, url: "URL", secret: {env: DESK_SECRET}}
"""


class Desk:
    """Someone who does what the webhook says.

    Attributes:
        received: What came.
        status: What is answered.
    """

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.status = 200
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                desk.received.append(json.loads(self.rfile.read(length)))
                body = b'{"ticket": 9223372036854775809}'
                self.send_response(desk.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    desk = Desk()
    thread = threading.Thread(target=desk.server.serve_forever, daemon=True)
    thread.start()
    yield desk
    desk.server.shutdown()
    thread.join()
    desk.server.server_close()


@dataclass(frozen=True, slots=True)
class Place:
    """A host whose agent asks for actions, which need a person's yes, and its command line."""

    host: HostProcess
    runmesh: CommandLine

    def ask(self, key: str) -> str:
        """Has a run ask for an action, and returns the action's id."""

        async def dispatch() -> None:
            asked = {"action": "ticket.create", "targetJson": TARGET, "idempotencyKey": key}
            async with calling(self.host.addresses["grpc"], self.host.key) as caller:
                answer = await caller.dispatch(
                    scripted({"send": [{"actionRequested": asked}]}, say("asked"), END)
                )
                assert answer.text == "asked"

        asyncio.run(dispatch())
        waiting = self.runmesh("actions", "list", "--status", "awaiting approval", "--json").json()
        [action_id] = [each["action_id"] for each in waiting if each["idempotency_key"] == key]
        return str(action_id)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, desk: Desk) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("actions")
    write_scripted_plugin(folder / "plugins")
    host = HostProcess(
        folder / "data",
        plugins=folder / "plugins",
        config=_CONFIG.replace("URL", desk.url),
        environment={"DESK_SECRET": "a secret"},
    )
    with host:
        yield Place(host, CommandLine(host.data))


def test_approved_action_is_executed_and_its_outcome_shown(place: Place, desk: Desk) -> None:
    action_id = place.ask("approved")
    listed = place.runmesh("actions", "list", "--status", "awaiting_approval").out
    [row] = [line for line in listed.splitlines() if action_id in line]
    assert "awaiting approval" in row
    assert "ticket.create" in row
    assert place.runmesh("actions", "show", action_id).out.count(TARGET) == 1
    before = len(desk.received)

    approved = place.runmesh("actions", "approve", action_id)
    assert approved.status == 0
    assert "executed" in approved.out
    assert '{"ticket": 9223372036854775809}' in approved.out
    assert [each["action_id"] for each in desk.received[before:]] == [action_id]

    # Again is nothing, and what was done cannot be rejected any more.
    again = place.runmesh("actions", "approve", action_id, "--json").json()
    assert again["status"] == "ACTION_STATUS_EXECUTED"
    assert again["decided_by"]
    refused = place.runmesh("actions", "reject", action_id)
    assert refused.status == 1
    assert refused.error_line().startswith("CONFLICT: ")
    assert len(desk.received) == before + 1


def test_rejected_action_is_not_executed(place: Place, desk: Desk) -> None:
    action_id = place.ask("rejected")
    before = len(desk.received)
    rejected = place.runmesh("actions", "reject", action_id, "--reason", "not today")
    assert rejected.status == 0
    assert "rejected" in rejected.out
    assert "not today" in rejected.out
    assert place.runmesh("actions", "approve", action_id).error_line().startswith("CONFLICT: ")
    assert len(desk.received) == before


def test_approval_whose_execution_fails_fails(place: Place, desk: Desk) -> None:
    action_id = place.ask("failing")
    desk.status = 500
    try:
        failed = place.runmesh("actions", "approve", action_id)
    finally:
        desk.status = 200
    assert failed.status == 1
    assert "the webhook answered with status 500" in failed.out


def test_what_is_not_there_is_told(place: Place) -> None:
    told = place.runmesh("actions", "show", "nothing").error_line()
    assert told.startswith("NOT_FOUND: ")
    assert "'runmesh actions list' shows the actions" in told
    assert place.runmesh("actions", "list", "--status", "waiting").status == 2
    assert place.runmesh("actions", "list", "--agent", "nobody").err == "no actions\n"


def test_webhooks_are_no_matter_of_apply(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "webhooks.yaml"
    file.write_text(_CONFIG.replace("URL", "https://desk.example/hook"))
    refused = place.runmesh("apply", "-f", str(file), environment={"DESK_SECRET": "a secret"})
    assert refused.status != 0
    assert "webhooks: is for the host itself" in refused.err
