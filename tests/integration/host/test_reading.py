"""Runners in processes of their own that read history, events and instructions; callers too."""

import base64
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import event_pb2, gateway_pb2, host_api_pb2

from tests.integration.host.calls import Answer, Caller, calling
from tests.integration.host.host_process import HostProcess
from tests.integration.host.refusals import refused
from tests.postgresql import running_postgresql

READING = Path(__file__).parent / "runners" / "reading.py"
_COMPONENT = {
    "apiVersion": "runmesh/v1",
    "kind": "AgentRunner",
    "metadata": {"name": "default", "label": {"en_US": "Reader"}},
    "permissions": {
        "history": ["page", "search"],
        "events": ["get", "page"],
        "artifacts": ["metadata", "read"],
    },
    "config_schema": [
        {"name": name, "type": "prompt-editor", "label": {"en_US": name}}
        for name in ("opening", "style")
    ],
}
_CONFIG = """\
agents:
- {id: default, runner_id: "plugin:runmesh/echo/default"}
- id: reader
  runner_id: "plugin:acme/reader/default"
  config:
    opening: [{role: system, content: "You read 世界."}]
    style: [{role: user, content: "Briefly."}]
- id: wide
  runner_id: "plugin:acme/reader/default"
  resources: {history_beyond_conversation: true}
policies:
- {workspace_id: french, instructions: "Answer in French."}
limits:
  page_item_text_bytes: 20000
"""
_LONG = "long 世界 👋 " * 3_000


def _write_reader(folder: Path) -> None:
    place = folder / "reader"
    (place / "components").mkdir(parents=True)
    (place / "components" / "default.yaml").write_text(yaml.safe_dump(_COMPONENT))
    (place / "main.py").write_text(READING.read_text())
    manifest = {
        "apiVersion": "runmesh/v1",
        "kind": "Plugin",
        "metadata": {
            "author": "acme",
            "name": "reader",
            "version": "1.0.0",
            "label": {"en_US": "Reader"},
        },
        "run": {"command": [sys.executable, "main.py"]},
        "components": ["components/default.yaml"],
    }
    (place / "manifest.yaml").write_text(yaml.safe_dump(manifest))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def reading_host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostProcess]:
    """A host on either engine, with a runner that reads."""
    folder = tmp_path_factory.mktemp("reading")
    _write_reader(folder / "plugins")
    with contextlib.ExitStack() as stack:
        arguments: tuple[str, ...] = ()
        if request.param == "postgresql":
            arguments = ("--database", stack.enter_context(running_postgresql()).url)
        host = HostProcess(
            folder / "data", plugins=folder / "plugins", config=_CONFIG, arguments=arguments
        )
        stack.callback(host.close)
        yield host.start()


@pytest.fixture
async def reader(reading_host: HostProcess) -> AsyncIterator[Caller]:
    """An operator of that host."""
    async with calling(reading_host.addresses["grpc"], reading_host.key) as caller:
        yield caller


def an_event(text: str | None, place: str, **fields: Any) -> event_pb2.EventEnvelope:
    event = event_pb2.EventEnvelope(
        type="message.received", conversation_id=place, actor=event_pb2.Actor(type="user", id="ann")
    )
    if text is not None:
        event.input.text = text
    event.MergeFrom(event_pb2.EventEnvelope(**fields))
    return event


async def read(
    caller: Caller,
    place: str,
    *calls: tuple[str, dict[str, Any]],
    text: str | None = "now",
    agent_id: str = "reader",
    **fields: Any,
) -> list[Any]:
    """Lets a run make calls, and returns what it was answered."""
    event = an_event(text, place, data_json=json.dumps({"calls": calls}), **fields)
    answer = await caller.dispatch(event, agent_id)
    assert answer.failure == ""
    return [json.loads(line) for line in _logged(answer)]


def _logged(answer: Answer) -> list[str]:
    return [result.log.text for result in answer.results if result.HasField("log")]


def texts(page: Any) -> list[str]:
    return [item["text"] for item in page.get("items", ())]


async def page_of(
    caller: Caller, place: str, **fields: Any
) -> gateway_pb2.PageConversationResponse:
    request = gateway_pb2.PageConversationRequest(conversation_id=place, **fields)
    return await caller.gateway.PageConversation(request, metadata=caller.metadata)


async def test_run_reads_what_was_said_before_its_event(reader: Caller) -> None:
    await read(reader, "before", text="one 世界")
    pages = await read(
        reader,
        "before",
        ("PageHistory", {}),
        ("PageHistory", {"direction": "PAGE_DIRECTION_OLDEST_FIRST", "pageSize": 1}),
        ("PageHistory", {"atOrBefore": "{latest}", "after": "{latest}"}),
        ("SearchHistory", {"query": "世界"}),
        ("SearchHistory", {"query": "now"}),
        text="now 世界",
    )
    assert [texts(page) for page in pages] == [
        ["read one 世界", "one 世界"],
        ["one 世界"],
        [],
        ["read one 世界", "one 世界"],
        [],
    ]
    assert "nextPageToken" in pages[1]


async def test_other_conversations_are_the_policys_to_grant(reader: Caller) -> None:
    await read(reader, "private", text="a secret")
    other = await page_of(reader, "private")
    calls = (
        ("PageHistory", {"conversationId": "private"}),
        ("PageHistory", {"conversationId": "nowhere"}),
        ("PageHistory", {"atOrBefore": other.items[0].cursor}),
        ("PageHistory", {"after": "no cursor"}),
    )
    narrow = await read(reader, "curious", *calls)
    wide = await read(reader, "curious too", *calls, agent_id="wide")
    assert narrow == [
        {"refused": "UNAUTHORIZED"},
        {"refused": "UNAUTHORIZED"},
        {"refused": "NOT_FOUND"},
        {"refused": "INVALID_ARGUMENT"},
    ]
    assert texts(wide[0]) == ["read a secret", "a secret"]
    assert wide[1:] == [{}, *narrow[2:]]


async def test_long_text_is_whole_in_an_artifact_that_the_run_may_read(reader: Caller) -> None:
    await reader.dispatch(an_event(_LONG, "long"))
    (page,) = await read(reader, "long", ("PageHistory", {}))
    for item in page["items"]:
        assert item["truncated"] is True
        assert _LONG.startswith(item["text"])
        assert 19_996 <= len(item["text"].encode()) <= 20_000
    ids = [item["artifacts"][0]["artifactId"] for item in page["items"]]
    assert len(set(ids)) == 2
    calls = [("ReadArtifact", {"artifactId": artifact_id}) for artifact_id in ids]
    for answer in await read(reader, "long", *calls):
        assert base64.b64decode(answer["data"]).decode() == _LONG
    elsewhere = await read(reader, "elsewhere", calls[0])
    assert elsewhere == [{"refused": "NOT_FOUND"}]


async def test_run_reads_events_of_its_conversation(reader: Caller) -> None:
    await read(reader, "events", text=None, type="group.member_joined", event_id="joined-1")
    await read(reader, "other events", text="x", event_id="elsewhere-1")
    one, listed, joined, missing = await read(
        reader,
        "events",
        ("GetEvent", {"eventId": "joined-1"}),
        ("PageEvents", {}),
        ("PageEvents", {"types": ["group.member_joined"]}),
        ("GetEvent", {"eventId": "elsewhere-1"}),
        event_id="own-1",
    )
    assert one["event"]["type"] == "group.member_joined"
    assert "input" not in one["event"]
    assert [event["eventId"] for event in listed["events"]] == ["own-1", "joined-1"]
    assert [event["eventId"] for event in joined["events"]] == ["joined-1"]
    assert missing == {"refused": "NOT_FOUND"}


async def test_event_without_text_writes_no_message_of_a_user(reader: Caller) -> None:
    for number, kind in enumerate(
        ("message.recalled", "group.member_joined", "friend.request_received", "api.invoked")
    ):
        await read(reader, "silent", text=None, type=kind, event_id=f"silent-{number}")
    items = (await page_of(reader, "silent")).items
    assert [item.text for item in items] == ["read nothing"] * 4
    (page,) = await read(reader, "silent", ("PageHistory", {}))
    assert texts(page) == ["read nothing"] * 4


async def test_run_reads_its_instructions(reader: Caller) -> None:
    (prompt,) = await read(reader, "prompt", ("GetPrompt", {}))
    assert prompt == {
        "messages": [{"role": "CHAT_ROLE_SYSTEM", "parts": [{"text": "You read 世界."}]}],
        "fragments": [{"source": "config.style", "text": "Briefly."}],
    }
    assert await read(reader, "prompt", ("GetPrompt", {}), agent_id="wide") == [{}]
    (there,) = await read(
        reader, "prompt", ("GetPrompt", {}), agent_id="wide", workspace_id="french"
    )
    assert there == {"fragments": [{"source": "workspace", "text": "Answer in French."}]}


async def test_caller_pages_through_a_conversation(reader: Caller) -> None:
    for number in range(3):
        await read(reader, "paged", text=str(number))
    first = await page_of(reader, "paged", page_size=4)
    rest = await page_of(reader, "paged", page_size=4, page_token=first.next_page_token)
    seen = [item.text for item in (*first.items, *rest.items)]
    assert seen == ["read 2", "2", "read 1", "1", "read 0", "0"]
    assert rest.next_page_token == ""
    oldest = await page_of(
        reader, "paged", direction=host_api_pb2.PAGE_DIRECTION_OLDEST_FIRST, page_size=1
    )
    assert [item.text for item in oldest.items] == ["0"]
    assert oldest.items[0].actor.id == "ann"


async def test_conversation_beyond_a_keys_reach_looks_like_none(reader: Caller) -> None:
    await read(reader, "kept", text="x", workspace_id="acme", bot_id="desk")
    _, limited = await reader.new_key(admin_pb2.ROLE_VIEWER, workspace_id="acme", bot_id="desk")
    _, foreign = await reader.new_key(admin_pb2.ROLE_VIEWER, workspace_id="other")
    place = {"workspace_id": "acme", "bot_id": "desk"}
    assert len((await page_of(reader.with_key(limited), "kept", **place)).items) == 2
    refusals = [
        await refused(page_of(reader.with_key(foreign), "kept", **place)),
        await refused(page_of(reader.with_key(limited), "kept", workspace_id="acme")),
        await refused(page_of(reader, "kept")),
        await refused(page_of(reader, "kept", **place, thread_id="t")),
    ]
    assert {(each.code, each.reason, each.message) for each in refusals} == {
        ("NOT_FOUND", "NOT_FOUND", "there is no conversation 'kept'")
    }
    bad = await refused(page_of(reader, "", page_size=101))
    assert set(bad.fields) == {"conversation_id", "page_size"}
