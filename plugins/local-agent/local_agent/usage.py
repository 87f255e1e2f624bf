"""What a run's models cost, summed over its calls."""

from runmesh.v1.types_pb2 import TokenUsage

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
)


class Tally:
    """Sums usage by model. A sum with an unknown part is unknown, never too small."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}

    def add(self, model_id: str, usage: TokenUsage | None) -> None:
        """Counts one call.

        Args:
            model_id: The model that was called.
            usage: What the call cost; None: unknown.
        """
        counts = _counts(usage)
        before = self._sums.get(model_id)
        if before is not None:
            counts = {name: before[name] + counts[name] for name in counts.keys() & before.keys()}
        self._sums[model_id] = counts

    @property
    def usage(self) -> list[TokenUsage]:
        """The sums, one entry a model, in the order in which the models were first called."""
        return [TokenUsage(model_id=each, **counts) for each, counts in self._sums.items()]


def _counts(usage: TokenUsage | None) -> dict[str, int]:
    if usage is None:
        return {}
    return {name: getattr(usage, name) for name in _COUNTS if usage.HasField(name)}  # type: ignore[arg-type]
