"""What a run shall do, the same for every runner that is measured."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run shall do: pieces of a message, the whole message, the end.

    Attributes:
        repeat: How many pieces.
        size: Bytes of a piece.
        interval_seconds: The pause behind each piece.
        delay_seconds: The pause before the first.
        together: Whether a bare runner sends what waits together. The SDK always does.
        clock: Whether a piece says when it was yielded, in nanoseconds of the system's monotonic
            clock, instead of `size` bytes. The SDK's runner for that is the plugin `clock`.
    """

    repeat: int
    size: int = 6
    interval_seconds: float = 0.0
    delay_seconds: float = 0.0
    together: bool = False
    clock: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Job":
        """Reads what `bare_config` wrote."""
        return cls(**config)

    @property
    def results(self) -> int:
        """How many results the run has."""
        return self.repeat + 2

    def bare_config(self) -> str:
        """The configuration of a bare runner, as JSON."""
        return json.dumps(asdict(self))

    def plugin_config(self) -> str:
        """The configuration of the plugin that does the same through the SDK, as JSON."""
        config: dict[str, object] = {
            "repeat": self.repeat,
            "interval_seconds": self.interval_seconds,
        }
        if not self.clock:
            config |= {"size": self.size, "delay_seconds": self.delay_seconds}
        return json.dumps(config)
