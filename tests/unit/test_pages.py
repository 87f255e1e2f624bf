"""Tests of `host_service.pages`: pages are those of one query."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import gateway_pb2, host_api_pb2

from host_service.errors import InvalidArgument
from host_service.limits import Limits
from host_service.pages import PageTokens, page_of

PAGES = PageTokens(limits=Limits())


def asking(**fields: Any) -> gateway_pb2.ListRunsRequest:
    return gateway_pb2.ListRunsRequest(**{"agent_id": "helper", **fields})


def refused(request: Any, pages: PageTokens = PAGES) -> None:
    with pytest.raises(InvalidArgument) as raised:
        pages.read(request)
    assert [fault.field for fault in raised.value.faults] == ["page_token"]


@pytest.mark.parametrize("cursor", ["a", "你 好", '["', "x" * 255, ""])
def test_token_leads_to_the_cursor_it_was_made_of(cursor: str) -> None:
    token = PAGES.issue(asking(), cursor)
    assert token
    assert PAGES.read(asking(page_token=token)) == cursor


def test_no_token_is_the_first_page_and_no_cursor_the_last() -> None:
    assert PAGES.read(asking()) is None
    assert PAGES.issue(asking(), None) == ""


def test_token_holds_for_any_size_of_page_and_after_a_start_of_the_host() -> None:
    token = PAGES.issue(asking(page_size=10), "c")
    later = PageTokens(limits=Limits())
    assert later.read(asking(page_size=20, page_token=token)) == "c"
    # The request of a later page has a token itself.
    again = later.issue(asking(page_token=token), "d")
    assert later.read(asking(page_token=again)) == "d"


@pytest.mark.parametrize(
    "changes",
    [
        {"agent_id": "other"},
        {"agent_id": ""},
        {"conversation_key": "c"},
        {"statuses": [gateway_pb2.RUN_STATUS_FAILED]},
    ],
)
def test_token_of_another_query_is_refused(changes: dict[str, Any]) -> None:
    refused(asking(page_token=PAGES.issue(asking(), "c"), **changes))


def test_token_of_another_call_is_refused_even_when_the_fields_are_alike() -> None:
    token = PAGES.issue(admin_pb2.ListAgentsRequest(), "c")
    refused(admin_pb2.ListApiKeysRequest(page_token=token))


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "!",
        "garbage",
        "é",
        "====",
        _encoded(1),
        _encoded(None),
        _encoded(value=True),
        _encoded([]),
        _encoded(["a", "b", "c"]),
        _encoded({"a": 1, "b": 2}),
        _encoded([1, 2]),
        base64.urlsafe_b64encode(b"[" * 700).decode().rstrip("="),
        base64.urlsafe_b64encode(b"\xff\xfe").decode().rstrip("="),
    ],
)
def test_what_is_no_token_is_refused_as_such(token: str) -> None:
    refused(asking(page_token=token))


def test_token_with_something_added_or_cursor_of_another_kind_is_refused() -> None:
    token = PAGES.issue(asking(), "c")
    for changed in (f"{token}!", f"!{token}", f"{token}\n", f"{token}=", token[:-1], f"{token}A"):
        refused(asking(page_token=changed))
    fingerprint, _ = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    for cursor in (1, None, ["c"]):
        refused(asking(page_token=_encoded([fingerprint, cursor])))


@given(
    st.text(max_size=40)
    | st.binary(max_size=30).map(lambda data: base64.urlsafe_b64encode(data).decode())
)
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_the_reading_of_a_token(token: str) -> None:
    if token:
        refused(asking(page_token=token.encode("utf-8", "replace").decode()))


@pytest.mark.parametrize(("asked", "given_"), [(0, 50), (1, 1), (100, 100)])
def test_page_has_as_many_items_as_asked_for(asked: int, given_: int) -> None:
    assert PAGES.size(asked) == given_


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_page_of_a_size_that_is_not_offered_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgument, match=rf"page_size: 0 \(for 50\) to 100; got {size}"):
        PAGES.size(size)


def test_page_sizes_are_the_operators() -> None:
    pages = PageTokens(limits=replace(Limits(), page_items=7, page_default_items=3))
    assert (pages.size(0), pages.size(7)) == (3, 7)
    with pytest.raises(InvalidArgument):
        pages.size(8)


@given(st.sets(st.integers(0, 200), max_size=40), st.integers(1, 15), st.data())
@settings(max_examples=60, deadline=None)
def test_pages_of_a_list_miss_and_double_nothing_that_stays(
    items: set[int], size: int, data: st.DataObject
) -> None:
    cursor: str | None = None
    seen, removed = list[str](), set[str]()
    while True:
        keys = [f"{item:03}" for item in sorted(items)]
        page, cursor = page_of(keys, cursor=cursor, size=size, keys=keys)
        assert len(page) <= size
        seen += page
        if cursor is None:
            break
        if items and data.draw(st.sampled_from([True, False]), label="one goes away"):
            gone = data.draw(st.sampled_from(sorted(items)), label="which")
            items = items - {gone}
            removed.add(f"{gone:03}")
    assert seen == sorted(set(seen))
    assert set(keys) <= set(seen)
    assert set(seen) <= set(keys) | removed


def test_token_of_another_place_is_refused_even_when_the_query_is_alike() -> None:
    query = host_api_pb2.PageHistoryRequest(page_size=2)
    for own, other in (("here", "there"), ("here", ""), ("", "here"), ("1:a", "a")):
        token = PAGES.issue(query, "c", within=own)
        asked = host_api_pb2.PageHistoryRequest(page_token=token)
        assert PAGES.read(asked, within=own) == "c"
        with pytest.raises(InvalidArgument, match="page_token"):
            PAGES.read(asked, within=other)


def test_page_of_a_search_has_a_size_of_its_own() -> None:
    assert (PAGES.search_size(0), PAGES.search_size(50)) == (10, 50)
    with pytest.raises(InvalidArgument, match=r"page_size: 0 \(for 10\) to 50; got 51"):
        PAGES.search_size(51)
