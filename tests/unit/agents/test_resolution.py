"""Tests of `host_service.agents.resolution`: which binding answers, and which two tie."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1 import event_pb2

from host_service.agents.binding import Binding
from host_service.agents.resolution import BindingIndex, Match, Rank, find_tie
from host_service.errors import BindingConflict, NoBinding
from host_service.runs.event import Event, known
from tests.unit.agents.work import calls_made_by
from tests.unit.runs.samples import NOON, an_event


def a_binding(
    id: str,
    *event_types: str,
    scope: Mapping[str, str] | None = None,
    filters: Mapping[str, str] | None = None,
    enabled: bool = True,
) -> Binding:
    return Binding(
        id=id,
        agent_id="agent",
        scope=scope or {},
        event_types=event_types or ("message.received",),
        filters=tuple((filters or {}).items()),
        enabled=enabled,
    )


def winner(event: Event, *bindings: Binding) -> str:
    """Return the id of the binding that answers, whatever the order they are stored in."""
    one, other = BindingIndex(bindings), BindingIndex(reversed(bindings))
    assert one.resolve(event) == other.resolve(event)
    return one.resolve(event).id


FROM_WIDE_TO_NARROW: Sequence[Mapping[str, str]] = (
    {},
    {"workspace_id": "acme"},
    {"bot_id": "desk"},
    {"conversation_id": "room"},
    {"thread_id": "topic"},
    {"actor_id": "ann"},
)


@pytest.mark.parametrize(("wide", "narrow"), [*combinations(FROM_WIDE_TO_NARROW, 2)])
def test_narrower_scope_wins_over_everything_else(
    wide: Mapping[str, str], narrow: Mapping[str, str]
) -> None:
    better_otherwise = a_binding(
        "wide", "message.received", scope=wide, filters={"actor.type": "user"}
    )
    assert winner(an_event(), better_otherwise, a_binding("narrow", "message.*", scope=narrow)) == (
        "narrow"
    )


def test_only_the_narrowest_field_of_a_scope_counts() -> None:
    with pytest.raises(BindingConflict):
        winner(
            an_event(),
            a_binding("a", scope={"actor_id": "ann", "bot_id": "desk"}),
            a_binding("b", scope={"actor_id": "ann"}),
        )


def test_every_field_of_a_scope_must_hold() -> None:
    elsewhere = a_binding("elsewhere", scope={"actor_id": "ann", "workspace_id": "other"})
    assert winner(an_event(), elsewhere, a_binding("global")) == "global"


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("message.received.first", "message.received.*"),
        ("message.received.*", "message.*"),
        ("message.received.first", "message.*"),
    ],
)
def test_exact_type_wins_over_prefix_and_longer_prefix_over_shorter(
    better: str, worse: str
) -> None:
    with_filter = a_binding("worse", worse, filters={"actor.type": "user"})
    event = an_event(type="message.received.first")
    assert winner(event, with_filter, a_binding("better", better)) == "better"


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("message.*", True),
        ("message.received.*", False),
        ("mess.*", False),
        ("received.*", False),
        ("message", False),
    ],
)
def test_prefix_ends_where_a_part_of_the_type_ends(pattern: str, matches: bool) -> None:
    index = BindingIndex([a_binding("it", pattern)])
    if matches:
        assert index.resolve(an_event()).id == "it"
    else:
        with pytest.raises(NoBinding):
            index.resolve(an_event())


def test_more_filters_win_over_fewer() -> None:
    both = {"actor.type": "user", "source_event_name": "GroupMessage"}
    assert (
        winner(
            an_event(),
            a_binding("none"),
            a_binding("one", filters={"actor.type": "user"}),
            a_binding("two", filters=both),
        )
        == "two"
    )


def test_filters_that_do_not_all_hold_leave_the_event_to_the_next_binding() -> None:
    wrong = a_binding("wrong", filters={"actor.type": "user", "data.room": "7"})
    assert winner(an_event(), wrong, a_binding("none")) == "none"


@pytest.mark.parametrize("data_json", ["{}", '{"room": ""}'])
def test_filter_on_empty_text_holds_only_where_the_text_is_there(data_json: str) -> None:
    asked = a_binding("asked", filters={"data.room": ""})
    expected = "none" if data_json == "{}" else "asked"
    assert winner(an_event(data_json=data_json), asked, a_binding("none")) == expected


def test_disabled_binding_answers_nothing() -> None:
    off = a_binding("off", scope={"actor_id": "ann"}, enabled=False)
    assert winner(an_event(), off, a_binding("on")) == "on"


def test_binding_that_names_a_type_twice_does_not_tie_with_itself() -> None:
    assert winner(an_event(), a_binding("it", "message.received", "message.received")) == "it"


def test_tie_at_dispatch_names_all_that_tie_and_nothing_else() -> None:
    with pytest.raises(BindingConflict) as raised:
        winner(an_event(), a_binding("a"), a_binding("b"), a_binding("c", "message.*"))
    assert raised.value.facts == {"bindings": "a, b"}


def test_bindings_whose_filters_ask_different_fields_tie_where_both_hold() -> None:
    one = a_binding("one", filters={"actor.type": "user"})
    other = a_binding("other", filters={"source_event_name": "GroupMessage"})
    with pytest.raises(BindingConflict):
        winner(an_event(), one, other)
    assert winner(an_event(source_event_name="else"), one, other) == "one"


def test_no_match_tells_the_type_and_the_scope_that_were_looked_for() -> None:
    with pytest.raises(NoBinding) as raised:
        BindingIndex([a_binding("it", "group.member_joined")]).resolve(an_event())
    text = raised.value.message
    for told in ("message.received", "actor_id 'ann'", "thread_id 'topic'", "workspace_id 'acme'"):
        assert told in text


def test_event_of_no_scope_reaches_only_what_holds_everywhere() -> None:
    event = known(event_pb2.EventEnvelope(type="schedule.triggered"), received_at=NOON)
    scoped = a_binding("scoped", "schedule.triggered", scope={"bot_id": "desk"})
    assert winner(event, scoped, a_binding("global", "schedule.*")) == "global"


def test_those_that_lost_are_told_best_first_with_what_they_count_by() -> None:
    index = BindingIndex(
        [
            a_binding("room-prefix", "message.*", scope={"conversation_id": "room"}),
            a_binding("global"),
            a_binding("global-filter", filters={"actor.type": "user"}),
            a_binding("room", "message.received", "a.b", scope={"conversation_id": "room"}),
            a_binding("elsewhere", scope={"conversation_id": "other"}),
            a_binding("filtered", filters={"actor.type": "bot"}),
        ]
    )
    found = index.find(an_event())
    assert (found.binding.id, found.rank) == (
        "room",
        Rank("conversation_id", "message.received", 0),
    )
    assert found.beaten == (
        Match("room-prefix", Rank("conversation_id", "message.*", 0)),
        Match("global-filter", Rank("", "message.received", 1)),
        Match("global", Rank("", "message.received", 0)),
    )


def test_binding_that_matches_by_several_of_its_types_is_told_once() -> None:
    twice = a_binding("twice", "message.received", "message.*")
    assert BindingIndex([twice]).find(an_event()).beaten == ()
    beaten = BindingIndex([a_binding("it", scope={"actor_id": "ann"}), twice]).find(an_event())
    assert [each.binding_id for each in beaten.beaten] == ["twice"]
    assert beaten.beaten[0].rank.pattern == "message.received"


# A plain reading of the rules, against which the index is held.

_NARROWNESS = {"actor_id": 5, "thread_id": 4, "conversation_id": 3, "bot_id": 2, "workspace_id": 1}


def _rank(binding: Binding, event: Event) -> tuple[int, int, int, int] | None:
    """Return how well a binding matches, larger is better; None if it does not match."""
    holds = (
        binding.enabled
        and all(event.scope_value(name) == value for name, value in binding.scope.items())
        and all(event.field_text(path) == text for path, text in binding.filters)
    )
    fits = [
        (pattern == event.type, len(pattern))
        for pattern in binding.event_types
        if re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), event.type)
    ]
    if not holds or not fits:
        return None
    narrowness = max((_NARROWNESS[name] for name in binding.scope), default=0)
    return (narrowness, *max(fits), len(binding.filters))


def _answer_by_the_rules(bindings: Sequence[Binding], event: Event) -> set[str]:
    ranks = {binding.id: _rank(binding, event) for binding in bindings}
    best = max((rank for rank in ranks.values() if rank is not None), default=None)
    return {name for name, rank in ranks.items() if rank is not None and rank == best}


def _answer(bindings: Sequence[Binding], event: Event) -> set[str]:
    try:
        return {BindingIndex(bindings).resolve(event).id}
    except NoBinding:
        return set()
    except BindingConflict as conflict:
        return set(conflict.facts["bindings"].split(", "))


_few = st.sampled_from(["x", "y"])
_scopes = st.dictionaries(st.sampled_from(sorted(_NARROWNESS)), _few, max_size=3)
_patterns = st.sampled_from(["a.b", "a.b.c", "a.*", "a.b.*", "b.c"])
_filters = st.lists(
    st.tuples(st.sampled_from(["actor.type", "data.n", "actor.id", "bot_id"]), _few), max_size=2
)
_bindings = st.lists(
    st.builds(
        Binding,
        id=st.just(""),
        agent_id=st.just("agent"),
        scope=_scopes,
        event_types=st.lists(_patterns, min_size=1, max_size=3).map(tuple),
        filters=_filters.map(tuple),
        enabled=st.sampled_from([True, True, True, False]),
    ),
    max_size=6,
).map(
    lambda bindings: [
        Binding(
            id=f"b{number}",
            agent_id=each.agent_id,
            scope=each.scope,
            event_types=each.event_types,
            filters=each.filters,
            enabled=each.enabled,
        )
        for number, each in enumerate(bindings)
    ]
)
_events = st.builds(
    lambda kind, actor, data, fields: an_event(
        type=kind,
        actor=event_pb2.Actor(type="user", id=actor),
        data_json=f'{{"n": "{data}"}}',
        **fields,
    ),
    st.sampled_from(["a.b", "a.b.c", "a.b.c.d", "b.c", "c.d"]),
    _few,
    _few,
    st.fixed_dictionaries(
        {
            name: st.sampled_from(["", "x", "y"])
            for name in ("workspace_id", "bot_id", "conversation_id", "thread_id")
        }
    ),
)


@given(_bindings, _events)
@settings(max_examples=80, deadline=None)
def test_index_answers_as_a_plain_reading_of_the_rules(
    bindings: list[Binding], event: Event
) -> None:
    assert _answer(bindings, event) == _answer_by_the_rules(bindings, event)


@given(_bindings, _events)
@settings(max_examples=80, deadline=None)
def test_all_that_match_are_told_in_the_order_of_the_rules(
    bindings: list[Binding], event: Event
) -> None:
    if len(_answer(bindings, event)) != 1:
        return
    found = BindingIndex(bindings).find(event)
    told = [found.binding.id, *[each.binding_id for each in found.beaten]]
    ranks = {each.id: rank for each in bindings if (rank := _rank(each, event)) is not None}
    assert sorted(told) == sorted(ranks)
    assert sorted(ranks.values(), reverse=True) == [ranks[name] for name in told]


@given(_bindings, _events)
@settings(max_examples=80, deadline=None)
def test_what_may_be_saved_together_never_conflicts_at_dispatch(
    bindings: list[Binding], event: Event
) -> None:
    saved: list[Binding] = []
    for binding in bindings:
        if find_tie([*saved, binding]) is None:
            saved.append(binding)
    assert len(_answer(saved, event)) <= 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a_binding("one"), a_binding("other")),
        (a_binding("one", "message.*", "a.b"), a_binding("other", "c.d", "message.*")),
        (
            a_binding("one", scope={"actor_id": "ann"}),
            a_binding("other", scope={"actor_id": "ann", "workspace_id": "acme"}),
        ),
        (
            a_binding("one", filters={"actor.type": "user"}),
            a_binding("other", filters={"data.room": "7"}),
        ),
        (a_binding("one", filters={"actor.type": ""}), a_binding("other", filters={"data.n": ""})),
    ],
)
def test_two_that_may_match_alike_tie(one: Binding, other: Binding) -> None:
    assert find_tie([a_binding("between", "group.*"), one, other]) == (one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a_binding("one"), a_binding("other", "message.*")),
        (a_binding("one"), a_binding("other", enabled=False)),
        (a_binding("one"), a_binding("other", filters={"actor.type": "user"})),
        (a_binding("one"), a_binding("other", scope={"workspace_id": "acme"})),
        (
            a_binding("one", scope={"workspace_id": "a"}),
            a_binding("other", scope={"workspace_id": "b"}),
        ),
        (
            a_binding("one", scope={"actor_id": "ann", "bot_id": "a"}),
            a_binding("other", scope={"actor_id": "ann", "bot_id": "b"}),
        ),
        (
            a_binding("one", filters={"actor.type": "user"}),
            a_binding("other", filters={"actor.type": "bot"}),
        ),
        # Empty text is a value like any other.
        (
            a_binding("one", filters={"source_event_name": ""}),
            a_binding("other", filters={"source_event_name": "x"}),
        ),
        # A filter may ask what the other's scope asks.
        (
            a_binding("one", scope={"actor_id": "ann"}, filters={"bot_id": "a"}),
            a_binding("other", scope={"actor_id": "ann", "bot_id": "b"}, filters={"data.n": "1"}),
        ),
    ],
)
def test_two_that_never_match_alike_do_not_tie(one: Binding, other: Binding) -> None:
    assert find_tie([one, other]) is None


MANY = 10_000


def _many(kind: str) -> list[Binding]:
    if kind == "scopes":
        return [a_binding(f"b{n}", scope={"conversation_id": f"room-{n}"}) for n in range(MANY)]
    if kind == "filters":
        return [a_binding(f"b{n}", filters={"data.room": f"room-{n}"}) for n in range(MANY)]
    return [
        a_binding(f"b{n}", scope={"actor_id": "ann", "conversation_id": f"room-{n}"})
        for n in range(MANY)
    ]


@pytest.mark.parametrize("kind", ["scopes", "filters", "scopes of one actor"])
def test_finding_one_of_ten_thousand_takes_a_handful_of_look_ups(kind: str) -> None:
    index = BindingIndex(_many(kind))
    event = an_event(conversation_id="room-9876", data_json='{"room": "room-9876"}')
    found: list[Binding] = []
    made = calls_made_by(lambda: found.append(index.resolve(event)), at_most=1_000)
    assert found[0].id == "b9876"
    assert made < 200


def test_few_look_ups_are_made_behind_the_winner() -> None:
    fields = [f"data.f{n}" for n in range(200)]
    index = BindingIndex(
        [
            a_binding("winner", scope={"actor_id": "ann"}),
            *[a_binding(field, filters={field: "1"}) for field in fields],
        ]
    )
    event = an_event()
    assert calls_made_by(lambda: index.find(event), at_most=2_000) < 400
    assert index.find(event).binding.id == "winner"


@pytest.mark.parametrize("kind", ["scopes", "filters", "scopes of one actor"])
def test_looking_for_ties_among_ten_thousand_goes_over_them_once(kind: str) -> None:
    bindings = _many(kind)
    calls_made_by(lambda: find_tie(bindings), at_most=50 * MANY)
    twin = Binding(
        id="twin",
        agent_id="agent",
        scope=bindings[77].scope,
        event_types=bindings[77].event_types,
        filters=bindings[77].filters,
    )
    assert find_tie([*bindings, twin]) == (bindings[77], twin)
