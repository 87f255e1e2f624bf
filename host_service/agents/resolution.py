"""Which binding answers an event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from host_service.agents.binding import SCOPE_FIELDS, Binding, Target
from host_service.errors import BindingConflict, NoBinding

_EVERYWHERE = ""


class BindingIndex:
    """Finds the binding for an event by look-ups, however many bindings there are.

    Bindings lie in buckets by (event type or prefix, narrowest scope field, its value). An event
    looks into one bucket for each of its scopes and type prefixes, from the narrowest and most
    exact on; the first that holds a match wins.
    """

    def __init__(self, bindings: Iterable[Binding]) -> None:
        buckets: dict[tuple[str, str, str], list[Binding]] = defaultdict(list)
        for binding in bindings:
            if not binding.enabled:
                continue
            name = next((name for name in SCOPE_FIELDS if binding.scope.get(name)), _EVERYWHERE)
            for event_type in binding.event_types:
                buckets[event_type, name, binding.scope.get(name, "")].append(binding)
        for bucket in buckets.values():
            bucket.sort(key=lambda binding: -len(binding.filters))
        self._buckets = dict(buckets)

    def resolve(self, target: Target) -> Binding:
        """Return the one binding that answers an event.

        Raises:
            NoBinding: None matches; the text has the type and scope that were looked for.
            BindingConflict: Two match equally well; both are named.
        """
        for bucket in self._candidates(target):
            winners = _best(bucket, target)
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

    def _candidates(self, target: Target) -> Iterator[Sequence[Binding]]:
        patterns = list(type_patterns(target.type))
        for name in (*SCOPE_FIELDS, _EVERYWHERE):
            value = target.scope_value(name) if name else ""
            if name and not value:
                continue
            for pattern in patterns:
                bucket = self._buckets.get((pattern, name, value))
                if bucket:
                    yield bucket


def type_patterns(event_type: str) -> Iterator[str]:
    """Yield what a binding may say to match a type: the type, then its prefixes, longest first."""
    yield event_type
    head, _, _ = event_type.rpartition(".")
    while head:
        yield f"{head}.*"
        head, _, _ = head.rpartition(".")


def _best(bucket: Sequence[Binding], target: Target) -> list[Binding]:
    best: list[Binding] = []
    for binding in bucket:
        if best and len(binding.filters) < len(best[0].filters):
            break
        if binding.matches(target):
            best.append(binding)
    return best


def find_tie(bindings: Sequence[Binding]) -> tuple[Binding, Binding] | None:
    """Return two bindings that may match the same event equally well, or None."""
    groups: dict[tuple[str, int, int], list[Binding]] = defaultdict(list)
    for binding in bindings:
        for event_type in dict.fromkeys(binding.event_types):
            group = groups[event_type, binding.narrowness, len(binding.filters)]
            for other in group:
                if binding.ties_with(other):
                    return other, binding
            group.append(binding)
    return None
