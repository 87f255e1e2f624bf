"""How many results of one run its runner may send ahead of whoever reads them."""

from host_service.limits import MIB

# Beyond so many, more in flight gains nothing.
_MOST_RESULTS = 512
_FEWEST_RESULTS = 16
# What a run should have waiting at most, as far as the size of its results so far tells.
_WAITING_BYTES = MIB


class Credit:
    """Counts what a runner was allowed, what came, and what was read.

    As many results may be on their way or wait as the window has room for: small ones many, large
    ones few. Reading makes room, and nothing else does: whoever does not read holds up this run
    alone.

    Args:
        initial: Results that may come before anything was read.
    """

    __slots__ = ("_allowed", "_bytes", "_initial", "_results", "_waiting")

    def __init__(self, *, initial: int) -> None:
        self._initial = initial
        self._allowed = initial
        self._waiting = 0
        self._results = 0
        self._bytes = 0

    def take(self, results: int, size_bytes: int) -> bool:
        """Count results that came; return whether they were allowed."""
        self._allowed -= results
        self._waiting += results
        self._results += results
        self._bytes += size_bytes
        return self._allowed >= 0

    def give_back(self, results: int) -> int:
        """Count results that were read; return how many more to allow now, often none."""
        self._waiting -= results
        window = self._window()
        due = window - self._allowed - self._waiting
        # Half a window at a time: a message for every result would cost as much as the results.
        if due < max(1, window // 2):
            return 0
        self._allowed += due
        return due

    def _window(self) -> int:
        if not self._results:
            return self._initial
        fitting = _WAITING_BYTES * self._results // max(1, self._bytes)
        return max(_FEWEST_RESULTS, min(_MOST_RESULTS, fitting))
