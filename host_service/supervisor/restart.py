"""When a plugin that crashed is started again, and when it is not."""

import random
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How a plugin's process is started, stopped, and started again.

    Attributes:
        ready_timeout_seconds: After its start it must be ready within this time.
        stop_grace_seconds: What it gets to end by itself.
        drain_seconds: What a process that was replaced gets to finish the runs it has: as long as a
            run of an agent may take unless the agent says otherwise.
        silence_seconds: A process that did not answer its health check for so long is replaced: it
            may be frozen. If it was only busy, it finishes its runs as any that is replaced.
        first_delay_seconds: Before the first restart; doubled for each further crash.
        longest_delay_seconds: No restart waits longer.
        crashes: So many within the window, or so many failed starts in a row, and it is held.
        window_seconds: How far back crashes count.
    """

    ready_timeout_seconds: float = 15.0
    stop_grace_seconds: float = 5.0
    drain_seconds: float = 300.0
    silence_seconds: float = 30.0
    first_delay_seconds: float = 0.5
    longest_delay_seconds: float = 30.0
    crashes: int = 5
    window_seconds: float = 60.0


class CrashHistory:
    """The crashes of one plugin that still count."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._crashed_at: deque[float] = deque(maxlen=policy.crashes)
        self._failed_starts = 0

    def served(self) -> None:
        """It became ready."""
        self._failed_starts = 0

    def crashed(self, *, now: float) -> None:
        """It crashed, or its start failed."""
        self._crashed_at.append(now)
        self._failed_starts += 1

    def is_too_much(self, *, now: float) -> bool:
        """Whether it is to be held."""
        return max(self._recent(now), self._failed_starts) >= self._policy.crashes

    def delay_seconds(self, *, now: float) -> float:
        """How long to wait before the next start: longer for each recent crash.

        The jitter keeps plugins that crash over one cause from starting all at once.
        """
        policy = self._policy
        doublings = max(self._recent(now) - 1, 0)
        delay: float = min(policy.first_delay_seconds * 2**doublings, policy.longest_delay_seconds)
        jitter = random.uniform(1.0, 1.3)  # noqa: S311 - it spreads load, it guards nothing
        return min(delay * jitter, policy.longest_delay_seconds)

    def clear(self) -> None:
        """Somebody changed something: it starts with a clean sheet."""
        self._crashed_at.clear()
        self._failed_starts = 0

    def _recent(self, now: float) -> int:
        return sum(1 for at in self._crashed_at if now - at <= self._policy.window_seconds)
