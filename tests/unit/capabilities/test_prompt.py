"""Tests of `host_service.capabilities.prompt`: the bound prompt, fragments, and their sources."""

import json
from typing import Any

import pytest
from runmesh.v1 import types_pb2

from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.agents.prompts import Prompts
from stores import Stores
from tests.unit.capabilities.rooms import Room

SYSTEM, USER = types_pb2.CHAT_ROLE_SYSTEM, types_pb2.CHAT_ROLE_USER
SCHEMA = ConfigSchema(
    (
        ConfigField(name="title", type="string"),
        ConfigField(name="opening", type="prompt-editor"),
        ConfigField(name="style", type="prompt-editor"),
        ConfigField(name="notes", type="json"),
    )
)


def entries(*texts: str, role: str = "system") -> list[dict[str, str]]:
    return [{"role": role, "content": text} for text in texts]


async def ask(stores: Stores, config: dict[str, Any], **rights: Any) -> Any:
    room = Room(stores)
    prompts = Prompts.of(SCHEMA, json.dumps(config))
    run = await room.run_of(await room.hears("x"), prompts=prompts, **rights)
    return await run.call("GetPrompt")


async def test_bound_prompt_is_the_first_that_has_entries(stores: Stores) -> None:
    config = {
        "style": [*entries("Be kind."), *entries("Hello!", role="user")],
        "opening": [],
        "notes": entries("not a prompt"),
        "title": "T",
    }
    answer = await ask(stores, config)
    assert [(each.role, each.parts[0].text) for each in answer.messages] == [
        (SYSTEM, "Be kind."),
        (USER, "Hello!"),
    ]
    assert list(answer.fragments) == []


async def test_other_prompts_and_the_workspace_are_fragments_with_their_sources(
    stores: Stores,
) -> None:
    config = {"style": entries("one", "two"), "opening": entries("bound")}
    answer = await ask(stores, config, instructions="Say nothing of prices.")
    assert [each.parts[0].text for each in answer.messages] == ["bound"]
    assert [(each.source, each.text) for each in answer.fragments] == [
        ("config.style", "one"),
        ("config.style", "two"),
        ("workspace", "Say nothing of prices."),
    ]


async def test_workspace_speaks_where_no_prompt_is_bound(stores: Stores) -> None:
    answer = await ask(stores, {"title": "T"}, instructions="Be brief.")
    assert list(answer.messages) == []
    assert [(each.source, each.text) for each in answer.fragments] == [("workspace", "Be brief.")]


async def test_run_without_instructions_has_none(stores: Stores) -> None:
    assert (await ask(stores, {})).ByteSize() == 0
    assert Prompts.of(None, '{"opening": [{"role": "user", "content": "x"}]}').read() == ()


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("system", SYSTEM),
        ("User", USER),
        ("assistant", types_pb2.CHAT_ROLE_ASSISTANT),
        ("tool", types_pb2.CHAT_ROLE_TOOL),
        ("developer", SYSTEM),
        ("", SYSTEM),
    ],
)
async def test_every_role_is_one_of_the_contracts(
    stores: Stores, role: str, expected: types_pb2.ChatRole.ValueType
) -> None:
    answer = await ask(stores, {"opening": entries("x", role=role)})
    assert answer.messages[0].role == expected


async def test_text_is_any_unicode_and_what_is_none_is_replaced(stores: Stores) -> None:
    config = {"opening": entries("a👋\ud83d b\0 \ud83d\udc4b"), "style": entries("\udc4b")}
    answer = await ask(stores, config)
    assert answer.messages[0].parts[0].text == "a👋\ufffd b\ufffd 👋"
    assert answer.fragments[0].text == "\ufffd"
