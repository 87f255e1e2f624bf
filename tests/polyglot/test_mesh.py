"""One host, an agent in every language: 200 conversations at once, and the same account of each."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import json_format
from runmesh.admin.v1 import explain_pb2

from tests.integration.host.calls import Caller, message
from tests.polyglot.examples import TOOLS, built_example
from tests.polyglot.mesh import Conversation, Mesh, buildable, running_mesh

CONVERSATIONS = 200
# Of so many conversations one is with an echo.
ECHOES_EACH = 4


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A host with all languages. Builds them, where nothing did before."""
    with running_mesh(tmp_path_factory.mktemp("mesh"), buildable()) as mesh:
        yield mesh


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("language", TOOLS)
def test_language_can_be_built_here(language: str) -> None:
    assert (built_example(language) / "manifest.yaml").is_file()


@pytest.mark.timeout(600)
async def test_two_hundred_conversations_at_once_are_answered_each_by_its_own(mesh: Mesh) -> None:
    async with mesh.caller() as caller:

        async def hold(number: int) -> None:
            language = mesh.languages[number // ECHOES_EACH % len(mesh.languages)]
            echoes = number % ECHOES_EACH == 0
            agent = f"{language}-{'echo' if echoes else 'desk'}"
            conversation = Conversation(caller, agent, f"room-{number:03}")
            if echoes:
                for turn in range(3):
                    await conversation.echo(f"room {number}, turn {turn}: 你好 👩‍💻 שלום\n")
                return
            await conversation.count()
            await conversation.post(number, f"room {number}")
            await conversation.recall()
            await conversation.file(f"notes of {number}.txt")
            await conversation.count()

        await asyncio.gather(*map(hold, range(CONVERSATIONS)))


async def test_runs_are_explained_alike_whatever_their_runner_is_written_in(mesh: Mesh) -> None:
    async with mesh.caller() as caller:
        accounts = {
            language: [await account(caller, run_id) for run_id in await ask_all(caller, language)]
            for language in mesh.languages
        }
    first, *others = mesh.languages
    for run in accounts[first]:
        # What is compared is there.
        assert run["calls"]["calls"]
        assert run["rights"]["grants"]
        assert run["said"]["results"]
    assert {call["rpc"] for run in accounts[first] for call in run["calls"]["calls"]} == {
        "CallTool", "CreateArtifact", "GetState", "PageHistory", "SetState"
    }  # fmt: skip
    for language in others:
        for number, (one, other) in enumerate(
            zip(accounts[first], accounts[language], strict=True)
        ):
            assert one == other, f"question {number}: {first} and {language} differ"


async def ask_all(caller: Caller, language: str) -> list[str]:
    """Has a desk do everything once, and returns the runs."""
    conversation = Conversation(caller, f"{language}-desk", f"room-{language:-<10}")
    answers = [
        await conversation.count(),
        await conversation.count(),
        await conversation.post(4475, "你好 👩‍💻"),
        await conversation.recall(),
        await conversation.file("notes.txt"),
    ]
    for text, failure in (
        ('tool ledger__refuse {"reason":"the ledger is closed"}', ""),
        ("tool ledger__nothing {}", "desk.refused"),
        ('tool ledger__post {"line":"4475"}', "desk.refused"),
    ):
        said = message(text, conversation_id=conversation.id)
        answers.append(await caller.dispatch(said, conversation.agent_id))
        assert answers[-1].failure == failure, answers[-1]
    return [answer.run_id for answer in answers]


# What is of one run, or of one runner, or takes its time.
_OWN = frozenset({
    "agentId", "artifactId", "bindingId", "conversationId", "conversationKey", "createdAt",
    "deadline", "duration", "endedAt", "eventId", "expiresAt", "firstDeltaAt", "instanceId",
    "messageId", "queuedAt", "receivedAt", "runId", "runnerId", "sessionKey", "sizeBytes",
    "startedAt", "time", "timestamp",
})  # fmt: skip


# A conversation's id, and those that the host makes, where they stand within a text.
_IDS = re.compile(r"room-[a-z-]{10}|[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


async def account(caller: Caller, run_id: str) -> dict[str, Any]:
    """Returns how a run is explained, without what differs from run to run."""
    request = explain_pb2.ExplainRunRequest(run_id=run_id)
    told = await caller.admin.ExplainRun(request, metadata=caller.metadata)
    names = [stretch.name for stretch in told.stretches]
    told.ClearField("stretches")
    shown = _without_own(json_format.MessageToDict(told))
    assert isinstance(shown, dict)
    # By what took longest: that is chance.
    shown["calls"]["totals"].sort(key=lambda total: total["rpc"])
    return {**shown, "stretches": names}


def _without_own(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_own(inner) for name, inner in value.items() if name not in _OWN}
        case list():
            return [_without_own(inner) for inner in value]
        case str():
            return _IDS.sub("ID", value)
        case _:
            return value
