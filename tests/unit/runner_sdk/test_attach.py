"""What a runner that attaches goes by; how it gets on with a host is tested with a real one."""

import asyncio

import pytest

from runner_sdk import Attach
from runner_sdk._attached_stream import _Credit


def test_the_environment_names_host_token_and_kind() -> None:
    assert Attach.from_environment({}) is None
    assert Attach.from_environment({"RUNMESH_ATTACH": ""}) is None
    plain = Attach.from_environment({"RUNMESH_ATTACH": "h:1", "RUNMESH_ATTACH_TOKEN": "rma_x"})
    assert plain == Attach(host="h:1", token="rma_x")
    told = Attach.from_environment(
        {
            "RUNMESH_ATTACH": "unix:/s",
            "RUNMESH_ATTACH_TOKEN": "rma_x",
            "RUNMESH_DEVELOPMENT": "1",
            "RUNMESH_ATTACH_INSECURE": "1",
        }
    )
    assert told == Attach(host="unix:/s", token="rma_x", development=True, insecure=True)


def test_the_token_is_not_shown() -> None:
    assert "rma_x" not in repr(Attach(host="h:1", token="rma_x"))


async def test_credit_is_waited_for_and_adds_up() -> None:
    credit = _Credit(2)
    assert await credit.some() == 2
    credit.spend(2)
    waiting = asyncio.create_task(credit.some())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.02)
    credit.add(3)
    credit.add(4)
    assert await waiting == 7
