"""Runners and hosts of different versions: what is new on one side breaks nothing on the other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from runmesh.v1 import gateway_pb2

from tests.integration.host.calls import Answer, Caller, calling, message
from tests.integration.host.host_process import HostProcess
from tests.polyglot.examples import TOOLS, built_example
from tests.polyglot.later_contract import LATER, LATER_LANGUAGES, LaterContract, later_contract
from tests.polyglot.mesh import Conversation, Mesh, buildable, running_mesh, serving

pytestmark = pytest.mark.timeout(1800)

# What a run of the desk and its handshake are told by a host.
SENT_TO_RUNNERS = [
    "HandshakeRequest", "ListRunnersRequest", "RunRequest", "RunContext", "HostAccess",
    "Conversation", "EventContext", "EventInput", "GetStateResponse", "SetStateResponse",
    "PageHistoryResponse", "TranscriptItem", "CallToolResponse", "CreateArtifactResponse",
    "ArtifactRef", "ContentPart",
]  # fmt: skip


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> LaterContract:
    """A later version of the contract."""
    return later_contract(tmp_path_factory.mktemp("later"))


@dataclass(frozen=True, slots=True)
class LaterMesh:
    """A host of the later version with the examples of today's.

    Attributes:
        mesh: Both.
        note: Where the host writes down what it sent that is new.
    """

    mesh: Mesh
    note: Path


@pytest.fixture(scope="module")
def later_host(
    contract: LaterContract, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LaterMesh]:
    """A host of the later version with the examples of today's."""
    folder = tmp_path_factory.mktemp("later-host")
    note = folder / "note"
    with running_mesh(folder, buildable(), environment=contract.environment(note)) as mesh:
        yield LaterMesh(mesh, note)


@pytest.mark.parametrize("language", TOOLS)
async def test_runner_of_today_does_its_work_for_a_host_of_a_later_version(
    language: str, later_host: LaterMesh
) -> None:
    built_example(language)
    async with later_host.mesh.caller() as caller:
        desk = Conversation(caller, f"{language}-desk", f"later-{language}")
        for _ in range(2):
            await desk.count()
        await desk.post(4475, "你好 👩‍💻")
        await desk.recall()
        await desk.file("notes.txt")
        echo = Conversation(caller, f"{language}-echo", f"later-echo-{language}")
        await echo.echo("hello, 你好\n")
        refused = await caller.dispatch(message("tool ledger__nothing {}"), f"{language}-desk")
    details = refused.ended.failure.details
    assert (refused.failure, details["reason"]) == ("desk.refused", "NOT_FOUND")
    sent = set(later_host.note.read_text().split())
    assert sent >= {f"runmesh.v1.{name}" for name in SENT_TO_RUNNERS}


@pytest.fixture(scope="module", params=LATER_LANGUAGES)
def later_runner(
    request: pytest.FixtureRequest,
    contract: LaterContract,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[HostProcess]:
    """A host of today with the runner of the later version in a language."""
    language = request.param
    plugins = tmp_path_factory.mktemp("later-runner") / "plugins"
    plugins.mkdir()
    (plugins / language).symlink_to(contract.plugin(language))
    config = f"agents:\n- {{id: later, runner_id: 'plugin:later/{language}/later'}}\n"
    with HostProcess(plugins.parent / "data", plugins=plugins, config=config) as host:
        asyncio.run(serving(host, {f"later/{language}"}))
        yield host


@asynccontextmanager
async def asking(host: HostProcess) -> AsyncIterator[Caller]:
    async with calling(host.addresses["grpc"], host.key) as caller:
        yield caller


async def ask(host: HostProcess, text: str) -> Answer:
    """Asks the runner of the later version for something."""
    async with asking(host) as caller:
        said = message(text, conversation_id=f"later-{text}")
        answer = await caller.dispatch(said, "later", timeout=120.0)
        # What is kept is what was delivered.
        again = await caller.watch(answer.run_id)
    assert again.kinds == [kind for kind in answer.kinds if kind != "message_delta"]
    return answer


async def test_result_of_a_new_type_is_reported_and_the_run_goes_on(
    later_runner: HostProcess,
) -> None:
    answer = await ask(later_runner, "result")
    assert answer.ended.status == gateway_pb2.RUN_STATUS_COMPLETED
    assert answer.warnings == ["unknown_result"]
    assert answer.messages == ["before", "after"]


async def test_result_of_a_new_type_that_must_be_understood_ends_the_run(
    later_runner: HostProcess,
) -> None:
    answer = await ask(later_runner, "must understand")
    assert answer.failure == "runner.protocol"
    assert "must be understood" in answer.ended.failure.message
    assert answer.messages == ["before"]


async def test_new_fields_content_and_enum_numbers_of_results_are_passed_on(
    later_runner: HostProcess,
) -> None:
    answer = await ask(later_runner, "values")
    assert answer.ended.status == gateway_pb2.RUN_STATUS_COMPLETED
    assert answer.warnings == ["unknown_value", "unknown_value"]
    role, level = answer.ended.warnings
    assert "message.role has enum number 1000" in role.message
    assert "log.level has enum number 1000" in level.message
    said, logged, _ = answer.results
    whole = said.message_completed.message
    assert news(said.message_completed) == {1000, 1001}
    assert news(whole) == {1000, 1001}
    assert [news(part) for part in whole.parts] == [set(), {1002}]
    assert answer.messages == ["hello"]
    assert (int(whole.role), int(logged.log.level)) == (LATER, LATER)


async def test_call_that_the_host_does_not_have_is_told_by_its_reason(
    later_runner: HostProcess,
) -> None:
    answer = await ask(later_runner, "call")
    assert answer.ended.status == gateway_pb2.RUN_STATUS_COMPLETED
    assert answer.text == "Foretell: NOT_IMPLEMENTED"


async def test_call_with_new_fields_is_answered(later_runner: HostProcess) -> None:
    answer = await ask(later_runner, "fields")
    assert answer.ended.status == gateway_pb2.RUN_STATUS_COMPLETED
    assert answer.text == '"kept"'


def news(message: Message) -> set[int]:
    """The numbers of the fields that today's version does not know."""
    unknown: Any = UnknownFieldSet(message)
    return {each.field_number for each in unknown}
