"""A host that is killed while an action executes: it has failed then, and is never tried again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from runmesh.admin.v1 import actions_pb2
from runmesh.v1 import host_api_pb2

from tests.integration.host.calls import END, Caller, calling, say, scripted
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin
from tests.unit.actions.server import hook_server

_CONFIG = """\
agents:
- id: default
  runner_id: plugin:acme/scripted/default
  resources: {platform_actions: [ticket.create], approval: never}
webhooks:
- {action: ticket.create, url: "URL", secret: {env: DESK_SECRET}, timeout: 60s}
"""
ASK = {"send": [{"actionRequested": {"action": "ticket.create", "idempotencyKey": "key"}}]}


async def _until_closed(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def the_action(caller: Caller) -> actions_pb2.Action:
    request = actions_pb2.ListActionsRequest()
    (action,) = (await caller.admin.ListActions(request, metadata=caller.metadata)).actions
    return action


async def test_action_that_a_kill_cut_off_has_failed_and_is_not_executed_again(
    make_host: Callable[..., HostProcess], tmp_path: Path
) -> None:
    write_scripted_plugin(tmp_path / "plugins")
    async with hook_server() as hook:
        hook.answer = _until_closed
        host = make_host(
            plugins=tmp_path / "plugins",
            config=_CONFIG.replace("URL", hook.url),
            environment={"DESK_SECRET": "a secret"},
        )
        await asyncio.to_thread(host.start)
        async with calling(host.addresses["grpc"], host.key) as caller:
            answer = await caller.dispatch(scripted(ASK, say("asked"), END))
            assert answer.text == "asked"
            await hook.arrived.wait()
            executing = await the_action(caller)
            assert executing.status == host_api_pb2.ACTION_STATUS_EXECUTING
        await asyncio.to_thread(host.kill)
        await asyncio.to_thread(host.start)
        async with calling(host.addresses["grpc"], host.key) as caller:
            failed = await the_action(caller)
            assert failed.status == host_api_pb2.ACTION_STATUS_FAILED
            assert "whether it took effect is not known" in failed.detail
            await caller.dispatch(scripted(ASK, say("asked again"), END))
            await asyncio.to_thread(host.close)
        assert len(hook.received) == 1
