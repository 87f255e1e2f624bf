"""What an adapter adds to an event comes through without secrets and permissions."""

import json

import pytest

from host_service.validation.adapter_extra import filter_adapter_extra


@pytest.mark.parametrize(
    "name",
    [
        "_private",
        "__class__",
        "api_key",
        "apiKey",
        "API-KEY",
        "keys",
        "access_token",
        "Token",
        "clientSecret",
        "db.password",
        "Credentials",
        "\uff54\uff4f\uff4b\uff45\uff4e",
        " _hidden",
        "permissions",
        "models.invoke",
        "models:invoke",
        "MODEL_PERMISSION_INVOKE",
        "historyPage",
        "storage_workspace",
        "platform_api",
        "platform_actions",
    ],
)
def test_entry_that_looks_like_a_secret_or_a_permission_is_dropped(name: str) -> None:
    text = json.dumps({name: "x", "room": "y"})
    assert filter_adapter_extra(text) == ('{"room":"y"}', [name])


@pytest.mark.parametrize(
    "name", ["room", "files", "models", "history", "storage", "page", "role", "locale", "секрет"]
)
def test_other_entries_stay(name: str) -> None:
    text = json.dumps({name: "x"})
    assert filter_adapter_extra(text) == (text, [])


def test_entries_are_dropped_at_any_depth_and_told_by_their_path() -> None:
    text = '{"auth":{"token":"t","user":"u"},"list":[{"_x":1},[{"secret":2,"ok":3}]]}'
    kept, dropped = filter_adapter_extra(text)
    assert kept == '{"auth":{"user":"u"},"list":[{},[{"ok":3}]]}'
    assert dropped == ["auth.token", "list[0]._x", "list[1][0].secret"]


def test_numbers_and_text_that_stay_keep_every_digit_and_character() -> None:
    text = '{"_x":0,"n":[9007199254740993,1.10,-0,1e5],"t":"明\\u0041\\"","b":[true,false,null]}'
    kept, _ = filter_adapter_extra(text)
    assert kept == '{"n":[9007199254740993,1.10,-0,1e5],"t":"明A\\"","b":[true,false,null]}'


def test_text_of_which_nothing_is_dropped_stays_the_very_same() -> None:
    text = ' { "room" : 1.0 } '
    assert filter_adapter_extra(text) == (text, [])


def test_nothing_is_left_of_an_object_of_secrets() -> None:
    assert filter_adapter_extra('{"token":1}') == (None, ["token"])
    assert filter_adapter_extra("{}") == (None, [])


def test_long_name_is_told_in_short() -> None:
    _, dropped = filter_adapter_extra(json.dumps({"key" + "x" * 5000: 1}))
    assert dropped == ["key" + "x" * 61 + "..."]


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"a":1,"a":2}'])
def test_anything_but_an_object_is_an_error_that_names_the_field(text: str) -> None:
    with pytest.raises(ValueError, match=r"^adapter_extra_json: "):
        filter_adapter_extra(text)
