"""Tests of `host_service.agents.binding`: what a binding asks for, and how it is stored."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_service.agents.binding import SCOPE_FIELDS, Binding

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_bindings = st.builds(
    Binding,
    id=_texts,
    agent_id=_texts,
    scope=st.dictionaries(st.sampled_from(SCOPE_FIELDS), _texts.filter(bool)),
    event_types=st.lists(_texts, max_size=3).map(tuple),
    filters=st.lists(st.tuples(_texts, _texts), max_size=3).map(tuple),
    enabled=st.booleans(),
)


@given(_bindings, st.integers(0, 2**63 - 1))
@settings(max_examples=40, deadline=None)
def test_every_field_comes_back_from_the_document_as_it_was(
    binding: Binding, revision: int
) -> None:
    read = Binding.from_document(
        binding.to_document(),
        id=binding.id,
        agent_id=binding.agent_id,
        enabled=binding.enabled,
        revision=revision,
    )
    assert read == binding
    assert read.revision == revision


@pytest.mark.parametrize(
    ("scope", "narrowest"),
    [
        ({}, ("", "")),
        ({"workspace_id": "acme", "bot_id": ""}, ("workspace_id", "acme")),
        ({"workspace_id": "acme", "thread_id": "t", "bot_id": "b"}, ("thread_id", "t")),
    ],
)
def test_narrowest_field_is_one_that_is_set(
    scope: dict[str, str], narrowest: tuple[str, str]
) -> None:
    assert Binding(id="b", agent_id="a", scope=scope).narrowest == narrowest


def test_conditions_join_scope_and_filters_under_the_paths_of_the_event() -> None:
    binding = Binding(
        id="b",
        agent_id="a",
        scope={"actor_id": "ann", "bot_id": ""},
        filters=(("data.n", "1"), ("actor.id", "ann")),
    )
    assert binding.conditions() == {"actor.id": "ann", "data.n": "1"}


def test_binding_that_asks_two_values_of_one_field_can_match_nothing() -> None:
    filters = (("data.n", "1"), ("data.n", "2"))
    assert Binding(id="b", agent_id="a", filters=filters).conditions() is None
