"""What it means to callers and runners that a store fails."""

from __future__ import annotations

from host_service.errors import HostError, Overloaded, Unavailable
from stores.errors import StoreClosed, StoreOverloaded, StoreUnavailable

#: Failures of a store that pass; every other one is a fault of the host.
STORE_FAILURES = (StoreUnavailable, StoreOverloaded, StoreClosed)

_RETRY_AFTER_SECONDS = 1.0


def meaning_of(error: StoreUnavailable | StoreOverloaded | StoreClosed) -> HostError:
    """Return what is told of a failure.

    What the store says may name the database and where it is: that is for the log.
    """
    if isinstance(error, StoreOverloaded):
        return Overloaded(
            "more waits to be stored than may", retry_after_seconds=_RETRY_AFTER_SECONDS
        )
    return Unavailable(
        "what the host keeps is away for now; try again", retry_after_seconds=_RETRY_AFTER_SECONDS
    )
