"""Which binding answers an event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from host_service.agents.binding import SCOPE_FIELDS, Binding, Target
from host_service.errors import BindingConflict, NoBinding

_EVERYWHERE = ""
# Names of scope fields and paths of filters that a binding asks for, and what they must equal.
_Shape = tuple[tuple[str, ...], tuple[str, ...]]
_Values = tuple[str | None, ...]

# Who explains a run wants to see what came next to the winner, and not all there was: behind it, so
# many look-ups are made at most.
_LOOKS_BEYOND = 16


class Rank(NamedTuple):
    """What a match counts by, in this order.

    Attributes:
        scope: The narrowest field of its scope; empty: it holds everywhere.
        pattern: What it says of the event's type: the type itself, or a prefix of it.
        filters: How many filters it has.
    """

    scope: str
    pattern: str
    filters: int


@dataclass(frozen=True, slots=True)
class Match:
    """A binding that matches an event, with what it counts by."""

    binding_id: str
    rank: Rank


@dataclass(frozen=True, slots=True)
class Found:
    """Which binding answers an event.

    Attributes:
        binding: The one that does.
        beaten: Others that match and lost to it, the best first, up to some.
        rank: What the winner counts by.
    """

    binding: Binding
    beaten: tuple[Match, ...]
    rank: Rank


class BindingIndex:
    """Finds the binding for an event by look-ups, however many bindings there are.

    Bindings lie in buckets by (event type or prefix, narrowest scope field, its value). An event
    looks into one bucket for each of its scopes and type prefixes, from the narrowest and most
    exact on; the first that holds a match wins.
    """

    def __init__(self, bindings: Iterable[Binding]) -> None:
        buckets: dict[tuple[str, str, str], list[Binding]] = defaultdict(list)
        for binding in bindings:
            if binding.enabled:
                for event_type in dict.fromkeys(binding.event_types):
                    buckets[event_type, *binding.narrowest].append(binding)
        self._buckets = {key: _Bucket(bucket) for key, bucket in buckets.items()}

    def resolve(self, target: Target) -> Binding:
        """Return the one binding that answers an event.

        Raises:
            NoBinding, BindingConflict: As `find`.
        """
        return self.find(target).binding

    def find(self, target: Target) -> Found:
        """Return the one binding that answers an event, and some that it won over.

        Raises:
            NoBinding: None matches; the text has the type and scope that were looked for.
            BindingConflict: Two match equally well; both are named.
        """
        looks = self._looks(target)
        best: Rank | None = None
        winners: list[Binding] = []
        beaten: list[tuple[Rank, Binding]] = []
        beyond = 0
        for rank, matching in looks:
            if best is None or rank == best:
                winners += matching
                best = rank if winners else None
            elif len(winners) > 1 or beyond == _LOOKS_BEYOND:
                break
            else:
                beyond += 1
                beaten += [(rank, binding) for binding in matching]
        if best is None:
            raise _no_binding(target)
        if len(winners) > 1:
            raise BindingConflict([binding.id for binding in winners])
        return Found(winners[0], _matches(winners[0], beaten), best)

    def _looks(self, target: Target) -> Iterator[tuple[Rank, Sequence[Binding]]]:
        """Yield what matches, rank by rank from the best on; ranks that nothing matches too."""
        patterns = list(type_patterns(target.type))
        for name in (*SCOPE_FIELDS, _EVERYWHERE):
            value = target.scope_value(name) if name else ""
            if name and not value:
                continue
            for pattern in patterns:
                bucket = self._buckets.get((pattern, name, value))
                if bucket is not None:
                    for filters, matching in bucket.looks(target):
                        yield Rank(name, pattern, filters), matching


def _matches(winner: Binding, beaten: Iterable[tuple[Rank, Binding]]) -> tuple[Match, ...]:
    # One that names several types that fit matches more than once: its best counts.
    ranks: dict[str, Rank] = {}
    for rank, binding in beaten:
        if binding is not winner:
            ranks.setdefault(binding.id, rank)
    return tuple(Match(binding_id, rank) for binding_id, rank in ranks.items())


def _no_binding(target: Target) -> NoBinding:
    scope = ", ".join(
        f"{name} {value!r}" for name in SCOPE_FIELDS if (value := target.scope_value(name))
    )
    return NoBinding(
        f"no binding matches an event of type {target.type!r} in "
        f"{scope or 'no particular scope'}: "
        "add one with `runmesh apply -f`, or name an agent"
    )


class _Bucket:
    """Bindings of one type and one narrowest scope, by what they ask for beside that.

    Those that ask for the same fields are told apart by one look-up of what the event says there.
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        shapes: dict[_Shape, dict[_Values, list[Binding]]] = defaultdict(lambda: defaultdict(list))
        for binding in bindings:
            scope = [
                (name, binding.scope[name]) for name in SCOPE_FIELDS if binding.scope.get(name)
            ]
            filters = sorted(binding.filters)
            shape = (tuple(name for name, _ in scope), tuple(path for path, _ in filters))
            shapes[shape][tuple(text for _, text in (*scope, *filters))].append(binding)
        self._shapes = sorted(shapes.items(), key=lambda entry: -len(entry[0][1]))

    def looks(self, target: Target) -> Iterator[tuple[int, Sequence[Binding]]]:
        """Yield those that match with how many filters they have, the most filters first.

        What asks for the same fields is looked up together, and comes even if nothing matches.
        """
        for (names, paths), by_values in self._shapes:
            values = (
                *[target.scope_value(name) for name in names],
                *[target.field_text(path) for path in paths],
            )
            yield len(paths), by_values.get(values, ())


def type_patterns(event_type: str) -> Iterator[str]:
    """Yield what a binding may say to match a type: the type, then its prefixes, longest first."""
    yield event_type
    head, _, _ = event_type.rpartition(".")
    while head:
        yield f"{head}.*"
        head, _, _ = head.rpartition(".")


def find_tie(bindings: Sequence[Binding]) -> tuple[Binding, Binding] | None:
    """Return two bindings that may match the same event equally well, or None."""
    rivals: dict[tuple[str, str, str, int], list[Binding]] = defaultdict(list)
    for binding in bindings:
        if binding.enabled:
            for event_type in dict.fromkeys(binding.event_types):
                rivals[event_type, *binding.narrowest, len(binding.filters)].append(binding)
    ties = (_tie_among(group) for group in rivals.values() if len(group) > 1)
    return next((tie for tie in ties if tie is not None), None)


def _tie_among(rivals: Sequence[Binding]) -> tuple[Binding, Binding] | None:
    """Return two of equally good bindings that no field tells apart, or None."""
    shapes: dict[frozenset[str], list[tuple[Mapping[str, str], Binding]]] = defaultdict(list)
    for binding in rivals:
        conditions = binding.conditions()
        if conditions is not None:
            shapes[frozenset(conditions)].append((conditions, binding))
    for shape, members in shapes.items():
        seen: dict[_Values, Binding] = {}
        for conditions, binding in members:
            other = seen.setdefault(_values(conditions, shape), binding)
            if other is not binding:
                return other, binding
    for (shape, members), (other_shape, others) in combinations(shapes.items(), 2):
        shared = shape & other_shape
        seen = {_values(conditions, shared): binding for conditions, binding in members}
        for conditions, binding in others:
            if (values := _values(conditions, shared)) in seen:
                return seen[values], binding
    return None


def _values(conditions: Mapping[str, str], paths: frozenset[str]) -> _Values:
    return tuple([conditions[path] for path in paths])
