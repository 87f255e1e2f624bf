"""One host with the examples of all languages that can be built here, and talks with them."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from runmesh.admin.v1 import tools_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2

from tests.integration.host.calls import Answer, Caller, calling, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.waiting import eventually
from tests.polyglot.examples import TOOLS, built_example

LEDGER = Path(__file__).with_name("ledger.py")
#: How many messages `recall` recalls.
RECALLED = 5
# The slowest virtual machine on a machine that builds beside it.
_SERVING_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Mesh:
    """A host that runs examples.

    Attributes:
        host: The host.
        languages: Whose examples it runs; the agents are named `LANGUAGE-desk` and `LANGUAGE-echo`.
    """

    host: HostProcess
    languages: Sequence[str]

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[Caller]:
        """A caller of the host."""
        async with calling(self.host.addresses["grpc"], self.host.key) as caller:
            yield caller


def buildable() -> list[str]:
    """Builds the examples, and returns the languages whose tools are there; in CI that is all."""
    languages = []
    for language in TOOLS:
        try:
            built_example(language)
        except pytest.skip.Exception:
            continue
        languages.append(language)
    return languages


@contextmanager
def running_mesh(
    folder: Path, languages: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Mesh]:
    """Runs a host with the examples of languages.

    Args:
        folder: Where it keeps all it has.
        languages: Whose examples.
        environment: Variables of the host's process.
    """
    plugins = folder / "plugins"
    plugins.mkdir(parents=True)
    for language in languages:
        (plugins / language).symlink_to(built_example(language))
    with HostProcess(
        folder / "data",
        plugins=plugins,
        config=_configuration(languages),
        environment=environment,
    ) as host:
        asyncio.run(_ready(host, languages))
        yield Mesh(host, languages)


def _configuration(languages: Sequence[str]) -> str:
    agents = []
    for language in languages:
        desk = {"runner_id": f"plugin:examples/{language}/desk", "config": {"tools": ["ledger__*"]}}
        echo = {"runner_id": f"plugin:examples/{language}/echo"}
        agents += [{"id": f"{language}-desk", **desk}, {"id": f"{language}-echo", **echo}]
    command = {"command": sys.executable, "args": [str(LEDGER)]}
    servers = [{"id": "ledger", "command": command}]
    return yaml.safe_dump({"agents": agents, "tool_servers": servers})


async def _ready(host: HostProcess, languages: Sequence[str]) -> None:
    await serving(host, {f"examples/{language}" for language in languages})
    async with calling(host.addresses["grpc"], host.key) as caller:
        await eventually(lambda: _has_tools(caller), seconds=_SERVING_SECONDS)


async def serving(host: HostProcess, plugins: AbstractSet[str]) -> None:
    """Returns when a host has instances of plugins that serve."""
    async with calling(host.addresses["grpc"], host.key) as caller:

        async def served() -> bool:
            listed = await caller.discovery.ListRunners(
                discovery_pb2.ListRunnersRequest(), metadata=caller.metadata
            )
            assert not listed.faults, listed.faults
            serving = discovery_pb2.INSTANCE_STATE_SERVING
            return plugins <= {each.plugin_id for each in listed.instances if each.state == serving}

        await eventually(served, seconds=_SERVING_SECONDS)


async def _has_tools(caller: Caller) -> bool:
    listed = await caller.admin.ListToolServerStatuses(
        tools_pb2.ListToolServerStatusesRequest(), metadata=caller.metadata
    )
    return [each.state for each in listed.statuses] == [tools_pb2.TOOL_SERVER_STATE_READY]


@dataclass(slots=True)
class Conversation:
    """A conversation with one desk, which knows what must be answered.

    Attributes:
        caller: Who holds it.
        agent_id: With whom.
        id: Its id.
        lines: What was said, as the desk writes it down.
    """

    caller: Caller
    agent_id: str
    id: str
    lines: list[str] = field(default_factory=list)
    _counted: int = 0

    async def say(self, text: str) -> Answer:
        """Says something, and returns what came of it, which must have ended well."""
        answer = await self.caller.dispatch(
            message(text, conversation_id=self.id), self.agent_id, timeout=180.0
        )
        assert answer.ended.status == gateway_pb2.RUN_STATUS_COMPLETED, (self.agent_id, answer)
        assert answer.warnings == [], (self.agent_id, answer.ended.warnings)
        answer.check_numbers()
        self.lines += [f"user: {text}", *(f"assistant: {said}" for said in answer.messages)]
        return answer

    async def count(self) -> Answer:
        """Has the message counted."""
        answer = await self.say("count")
        self._counted += 1
        assert answer.text == f"message {self._counted} of this conversation", self.agent_id
        return answer

    async def recall(self) -> Answer:
        """Has the last messages recalled: those of this conversation, and no others."""
        expected = "\n".join(self.lines[-RECALLED:]) or "nothing yet"
        answer = await self.say("recall")
        assert answer.text == expected, self.agent_id
        return answer

    async def file(self, name: str) -> Answer:
        """Has the conversation filed."""
        content = "\n".join(self.lines).encode()
        answer = await self.say(f"file {name}")
        digest = hashlib.sha256(content).digest()
        assert answer.text == f"{name}, {len(content)} bytes, sha256 {digest.hex()}", self.agent_id
        (ref,) = (
            each.artifact_created.ref
            for each in answer.results
            if each.HasField("artifact_created")
        )
        assert (ref.name, ref.size_bytes, ref.sha256) == (name, len(content), digest)
        return answer

    async def post(self, line: int, text: str) -> Answer:
        """Has a tool called with numbers that are easily changed on the way."""
        sent = f'{{"line":{line},"big":9007199254740993,"f":1.0,"text":"{text}"}}'
        answer = await self.say(f"tool ledger__post {sent}")
        assert answer.text == f"{line} 9007199254740993 1.0 {text!r}", self.agent_id
        return answer

    async def echo(self, text: str) -> Answer:
        """Has a text said back, in pieces and as a whole."""
        answer = await self.say(text)
        assert answer.shown == text, self.agent_id
        assert answer.messages == [text], self.agent_id
        return answer
