"""Which binding answers an event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from host_service.agents.binding import SCOPE_FIELDS, Binding, Target
from host_service.errors import BindingConflict, NoBinding

_EVERYWHERE = ""
# Names of scope fields and paths of filters that a binding asks for, and what they must equal.
_Shape = tuple[tuple[str, ...], tuple[str, ...]]
_Values = tuple[str | None, ...]


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
            NoBinding: None matches; the text has the type and scope that were looked for.
            BindingConflict: Two match equally well; both are named.
        """
        for bucket in self._candidates(target):
            winners = bucket.best(target)
            if len(winners) > 1:
                raise BindingConflict([binding.id for binding in winners])
            if winners:
                return winners[0]
        scope = ", ".join(
            f"{name} {value!r}" for name in SCOPE_FIELDS if (value := target.scope_value(name))
        )
        raise NoBinding(
            f"no binding matches an event of type {target.type!r} in "
            f"{scope or 'no particular scope'}: "
            "add one with `runmesh apply -f`, or name an agent"
        )

    def _candidates(self, target: Target) -> Iterator[_Bucket]:
        patterns = list(type_patterns(target.type))
        for name in (*SCOPE_FIELDS, _EVERYWHERE):
            value = target.scope_value(name) if name else ""
            if name and not value:
                continue
            for pattern in patterns:
                bucket = self._buckets.get((pattern, name, value))
                if bucket is not None:
                    yield bucket


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

    def best(self, target: Target) -> Sequence[Binding]:
        """Return those that match with the most filters; empty if none matches."""
        best: list[Binding] = []
        for (names, paths), by_values in self._shapes:
            if best and len(paths) < len(best[0].filters):
                break
            values = (
                *[target.scope_value(name) for name in names],
                *[target.field_text(path) for path in paths],
            )
            best += by_values.get(values, ())
        return best


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
