"""What the stores refuse, in the words of HostAPI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from host_service.errors import Conflict, FieldFault, InvalidArgument, PayloadTooLarge
from stores.errors import InvalidRecord, ValueTooLarge, VersionConflict


@contextmanager
def told_to_runners() -> Iterator[None]:
    """Let what a store refuses reach a runner as what it means there.

    Raises:
        Conflict: A version is stale; the one that holds is in the facts.
        PayloadTooLarge: A value is larger than the stores take.
        InvalidArgument: A value or key is none that can be stored.
    """
    try:
        yield
    except VersionConflict as error:
        facts = {"resource": error.key, "version": str(error.actual)}
        raise Conflict(str(error), facts=facts) from error
    except ValueTooLarge as error:
        raise PayloadTooLarge(
            error.field, size_bytes=error.size, limit_bytes=error.limit
        ) from error
    except InvalidRecord as error:
        fault = FieldFault(error.field, error.rule, "something that cannot be stored")
        raise InvalidArgument([fault]) from error
