"""API keys: who may call what, and how far each reaches."""

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import attach_pb2, discovery_pb2, gateway_pb2

from tests.integration.host.calls import Caller, Metadata, message
from tests.integration.host.refusals import refused
from tests.integration.host.rpcs import Rpc, rpcs_of

INGRESS, VIEWER, OPERATOR = (
    admin_pb2.ROLE_INGRESS,
    admin_pb2.ROLE_VIEWER,
    admin_pb2.ROLE_OPERATOR,
)
SENDERS, READERS = {INGRESS, OPERATOR}, {VIEWER, OPERATOR}
EVERYBODY = {INGRESS, VIEWER, OPERATOR}

# As the comments of the contract say it; what is not named here needs an operator.
ALLOWED = {
    "Dispatch": SENDERS,
    "SubmitEvent": SENDERS,
    "CancelRun": SENDERS,
    "CreateArtifact": SENDERS,
    "WatchRun": EVERYBODY,
    "GetRun": EVERYBODY,
    "PageConversation": EVERYBODY,
    "ReadArtifact": EVERYBODY,
    "ListRuns": READERS,
    "ListRunners": READERS,
    "GetAgent": READERS,
    "ListAgents": READERS,
    "ListBindings": READERS,
    "GetModel": READERS,
    "ListModels": READERS,
    "GetToolServer": READERS,
    "ListToolServers": READERS,
    "ListToolServerStatuses": READERS,
    "GetKnowledgeBase": READERS,
    "ListKnowledgeBases": READERS,
    "ListDocuments": READERS,
    "CountDocuments": READERS,
    "SearchKnowledge": READERS,
    "GetPolicy": READERS,
    "ListPolicies": READERS,
    "GetPluginSettings": READERS,
    "ListPluginSettings": READERS,
    "ListActions": READERS,
    "GetAction": READERS,
    "ExplainRun": READERS,
    "GetHost": READERS,
}
KEYED = [
    *rpcs_of(gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"]),
    *rpcs_of(admin_pb2.DESCRIPTOR.services_by_name["AdminService"]),
    *(
        rpc
        for rpc in rpcs_of(discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"])
        if rpc.method.name == "ListRunners"
    ),
]


@pytest.fixture
async def keys(caller: Caller) -> dict[admin_pb2.Role.ValueType, str]:
    """A key of each role."""
    return {role: (await caller.new_key(role))[1] for role in (INGRESS, VIEWER, OPERATOR)}


def bearing(key: str) -> Metadata:
    return (("authorization", f"Bearer {key}"),)


async def test_every_call_refuses_every_role_that_is_not_enough(
    caller: Caller, keys: dict[admin_pb2.Role.ValueType, str]
) -> None:
    wrong = []
    for rpc in KEYED:
        allowed = ALLOWED.get(rpc.method.name, {OPERATOR})
        for role in set(keys) - allowed:
            refusal = await refused(rpc.call(caller.channel, bearing(keys[role])))
            if (refusal.code, refusal.reason) != ("PERMISSION_DENIED", "UNAUTHORIZED"):
                wrong.append((str(rpc), role, refusal))
    assert wrong == []


@pytest.mark.parametrize("rpc", KEYED, ids=str)
async def test_call_without_a_good_key_is_refused(caller: Caller, rpc: Rpc) -> None:
    for metadata in (
        (),
        bearing("rmk_" + "A" * 43),
        bearing(""),
        (("authorization", "Basic b3BlcmF0b3I6"),),
        (("authorization", caller.metadata[0][1].removeprefix("Bearer ")),),
    ):
        refusal = await refused(rpc.call(caller.channel, metadata))
        assert refusal.code == refusal.reason == "UNAUTHENTICATED"
        assert "rmk_A" not in refusal.message


async def test_each_role_may_do_what_it_is_for(
    caller: Caller, keys: dict[admin_pb2.Role.ValueType, str]
) -> None:
    sender, viewer = caller.with_key(keys[INGRESS]), caller.with_key(keys[VIEWER])
    ran = await sender.dispatch(message("sent"))
    assert (await sender.watch(ran.run_id)).text == "sent"
    assert (await viewer.watch(ran.run_id)).text == "sent"
    assert (await viewer.get(ran.run_id)).run_id == ran.run_id
    assert (await viewer.list(page_size=1)).runs
    assert (await sender.cancel(ran.run_id)) == ran.ended
    runners = await viewer.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=viewer.metadata
    )
    assert "plugin:runmesh/echo/default" in {each.id for each in runners.runners}


async def test_revoked_key_is_refused_from_then_on(caller: Caller) -> None:
    key_id, key = await caller.new_key(INGRESS)
    sender = caller.with_key(key)
    await sender.dispatch(message())
    request = admin_pb2.RevokeApiKeyRequest(key_id=key_id)
    revoked = await caller.admin.RevokeApiKey(request, metadata=caller.metadata)
    assert revoked.key.HasField("revoked_at")
    refusal = await refused(sender.dispatch(message()))
    assert refusal.code == refusal.reason == "UNAUTHENTICATED"


async def test_key_that_has_expired_is_refused(caller: Caller) -> None:
    lifetime = Duration(nanos=400_000_000)
    _, key = await caller.new_key(VIEWER, lifetime=lifetime)
    viewer = caller.with_key(key)
    await viewer.list(page_size=1)
    await asyncio.sleep(0.45)
    refusal = await refused(viewer.list(page_size=1))
    assert refusal.code == refusal.reason == "UNAUTHENTICATED"


async def test_what_is_wrong_with_a_key_is_not_told(caller: Caller) -> None:
    key_id, key = await caller.new_key(VIEWER)
    await caller.admin.RevokeApiKey(
        admin_pb2.RevokeApiKeyRequest(key_id=key_id), metadata=caller.metadata
    )
    messages = {
        (await refused(caller.with_key(each).get("x"))).message for each in (key, "rmk_unknown")
    }
    assert len(messages) == 1


@pytest.fixture
async def limited(caller: Caller) -> Caller:
    """Somebody whose key, though an operator's, is limited to one workspace and one bot."""
    _, key = await caller.new_key(OPERATOR, workspace_id="mine", bot_id="bot")
    return caller.with_key(key)


async def test_key_limited_to_a_place_sends_events_only_there(
    caller: Caller, limited: Caller
) -> None:
    inside = message(workspace_id="mine", bot_id="bot")
    assert (await limited.dispatch(inside)).ended.run_id
    newest = (await caller.list(page_size=1)).runs
    for place in ({}, {"workspace_id": "mine"}, {"workspace_id": "other", "bot_id": "bot"}):
        for call in (limited.dispatch(message(**place)), limited.submit(message(**place))):
            refusal = await refused(call)
            assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "UNAUTHORIZED")
    assert (await caller.list(page_size=1)).runs == newest


async def test_runs_beyond_a_keys_reach_look_like_none(caller: Caller, limited: Caller) -> None:
    mine = (await caller.dispatch(message(workspace_id="mine", bot_id="bot"))).run_id
    others = [
        (await caller.dispatch(message(**place))).run_id
        for place in ({}, {"workspace_id": "mine", "bot_id": "b"}, {"bot_id": "bot"})
    ]
    listed = {run.run_id for run in (await limited.list(page_size=100)).runs}
    assert mine in listed
    assert not listed & set(others)
    assert (await limited.get(mine)).run_id == mine
    unknown = await refused(limited.get("01890000-0000-7000-8000-000000000000"))
    for run_id in others:
        for call in (limited.get(run_id), limited.watch(run_id), limited.cancel(run_id)):
            refusal = await refused(call)
            assert (refusal.code, refusal.reason) == (unknown.code, unknown.reason)
            assert refusal.message.replace(run_id, "X") == unknown.message.replace(
                "01890000-0000-7000-8000-000000000000", "X"
            )


async def test_limited_key_makes_no_key_that_reaches_further(limited: Caller) -> None:
    for reach in ({}, {"workspace_id": "mine"}, {"workspace_id": "other", "bot_id": "bot"}):
        refusal = await refused(limited.new_key(VIEWER, **reach))
        assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "UNAUTHORIZED")


async def test_attaching_takes_a_token_of_its_own_and_no_key(caller: Caller) -> None:
    (rpc,) = rpcs_of(attach_pb2.DESCRIPTOR.services_by_name["AttachService"])
    for metadata in ((), caller.metadata):
        refusal = await refused(rpc.call(caller.channel, metadata))
        assert (refusal.code, refusal.reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
