"""Who answers in a chat, told beside the answers: the agent, its model, and that one is none."""

import asyncio
import time

import grpc
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2

from host_service.cli.connection import CALL_SECONDS, HostConnection
from host_service.cli.model_display import is_rehearsal

_DEFAULT_AGENT = "default"
_PATIENCE_SECONDS = 2.0
_POLL_SECONDS = 0.05
_ADVICE = (
    "no language model: it repeats what it is told; for a real one set OPENAI_API_KEY or "
    "OPENAI_BASE_URL and start anew, or see 'runmesh models add --help'"
)


class Answerers:
    """Tells who answers, as far as the key that is used may know.

    Args:
        host: The host.
        agent_id: The agent that is asked; empty: the bindings choose.
    """

    def __init__(self, host: HostConnection, agent_id: str) -> None:
        self._host = host
        self._agent_id = agent_id
        self._told: set[str] = set()

    async def expected(self) -> str:
        """Who will answer, before anything is said; empty when nobody can tell.

        What models an agent asks for is known once its runner is: where a host has only just
        started, that is waited for a little.
        """
        try:
            agent = await self._agent()
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not (agent.model_ids or await self._is_known(agent.agent.runner_id)):
                if time.monotonic() > deadline:
                    break
                await asyncio.sleep(_POLL_SECONDS)
                agent = await self._agent()
            # It may have become known between the two looks.
            agent = agent if agent.model_ids else await self._agent()
        except grpc.aio.AioRpcError:
            return ""
        who = f"agent {agent.agent.id} on {agent.agent.runner_id}"
        if not agent.model_ids:
            return who
        model_id = agent.model_ids[0]
        return f"{who}, model {model_id}{await self._what_it_is(model_id)}"

    async def _agent(self) -> admin_pb2.GetAgentResponse:
        return await self._host.admin.GetAgent(
            admin_pb2.GetAgentRequest(agent_id=self._agent_id or _DEFAULT_AGENT),
            metadata=self._host.metadata,
            timeout=CALL_SECONDS,
        )

    async def _is_known(self, runner_id: str) -> bool:
        mesh = await self._host.discovery.ListRunners(
            discovery_pb2.ListRunnersRequest(),
            metadata=self._host.metadata,
            timeout=CALL_SECONDS,
        )
        return any(each.id == runner_id for each in mesh.runners)

    async def of(self, run: gateway_pb2.Run) -> str:
        """What must be known of who answered a run, once for each model; empty: nothing."""
        for usage in run.usage:
            if usage.model_id not in self._told:
                model = await self._model(usage.model_id)
                if model is not None and is_rehearsal(model):
                    return f"answered by model {usage.model_id} ({_ADVICE})"
        return ""

    async def _what_it_is(self, model_id: str) -> str:
        model = await self._model(model_id)
        if model is None or model.model_name in {"", model_id}:
            told = ""
        else:
            told = f" ({model.model_name})"
        return f" ({_ADVICE})" if model is not None and is_rehearsal(model) else told

    async def _model(self, model_id: str) -> admin_pb2.Model | None:
        self._told.add(model_id)
        try:
            answer = await self._host.admin.GetModel(
                admin_pb2.GetModelRequest(model_id=model_id),
                metadata=self._host.metadata,
                timeout=CALL_SECONDS,
            )
        except grpc.aio.AioRpcError:
            return None
        return answer.model
