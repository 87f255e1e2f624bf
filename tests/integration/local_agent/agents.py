"""A real host with the local agent, whose models are served by a torture server."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from local_agent.main import LocalAgent
from runmesh.admin.v1 import admin_pb2, tools_pb2
from runmesh.v1 import context_pb2

from host_service.testing import RealHost
from tests.integration.models.torture_server import Reply, TortureServer, chunk, streamed

AGENT = "default"
RUNNER = "plugin:runmesh/local-agent/default"
PRIMARY = "primary"
FALLBACK = "fallback"
# A tool server may take long to start on a machine that does much else.
_PATIENCE_SECONDS = 50.0
_CHAT_ABILITIES = (context_pb2.MODEL_ABILITY_TOOL_CALLING,)


def model(
    model_id: str,
    server: TortureServer,
    *,
    abilities: Sequence[context_pb2.ModelAbility.ValueType] = _CHAT_ABILITIES,
    **fields: Any,
) -> admin_pb2.Model:
    """A chat model that a server serves."""
    return admin_pb2.Model(
        id=model_id,
        kind=context_pb2.MODEL_KIND_CHAT,
        provider="openai",
        model_name=f"{model_id}-served",
        base_url=server.base_url,
        api_key="key-of-the-tests",
        abilities=abilities,
        **fields,
    )


@asynccontextmanager
async def local_agent(
    *models: admin_pb2.Model,
    tool_servers: Sequence[admin_pb2.ToolServer] = (),
    bases: Sequence[admin_pb2.KnowledgeBase] = (),
    **config: Any,
) -> AsyncIterator[RealHost]:
    """A host whose default agent is the local one; by default its model is the first."""
    chosen = {"primary": models[0].id, "fallbacks": [each.id for each in models[1:]]}
    agent = admin_pb2.Agent(
        id=AGENT, runner_id=RUNNER, config_json=json.dumps({"model": chosen, **config})
    )
    async with RealHost(LocalAgent()) as host:
        request = admin_pb2.ApplyRequest(
            models=models, tool_servers=tool_servers, knowledge_bases=bases, agents=[agent]
        )
        await host.admin.Apply(request, metadata=host.metadata)
        for each in tool_servers:
            await _ready(host, each.id)
        yield host


async def _ready(host: RealHost, server_id: str) -> None:
    """Waits until a tool server has told of its tools."""
    asked = tools_pb2.ListToolServerStatusesRequest(tool_server_id=server_id)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            listed = await host.admin.ListToolServerStatuses(asked, metadata=host.metadata)
            if any(each.tools for each in listed.statuses):
                return
            await asyncio.sleep(0.05)


def called(name: str, arguments: str, *, call_id: str = "call-1", text: str = "") -> Reply:
    """A reply that wants a tool called."""
    call = {
        "index": 0,
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    before = [chunk(text)] if text else []
    return streamed(*before, chunk(tool_calls=[call]), chunk(finish="tool_calls"))
