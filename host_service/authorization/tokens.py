"""The two tokens of a run: the run's own, which dies with it, and that of the plugin's instance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from host_service.agents.prompts import Prompts
from host_service.authorization.rate import Rate
from host_service.authorization.secrets import RUN_TOKEN_PREFIX, hash_secret, new_secret
from host_service.authorization.snapshot import Snapshot
from host_service.errors import DeadlineExceeded, HostError, Unauthenticated
from host_service.limits import Limits
from stores import Stores
from stores.records import Acceptance

# One text for every way to fail: what is wrong with a token is told to nobody who does not have a
# good one.
_REFUSED = "the run token or the instance token is missing, wrong, or of a run that has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a run was told at its start, beside its rights, and the host goes by as well.

    Attributes:
        prompts: The prompts of its agent.
        latest_cursor: Returns the cursor of the newest transcript item before its event; empty
            without any. It is known by the time the runner is called.
        replays: The run that it replays without side effects; empty: it is no such replay.
        deadline: When its time is up; None: it has no deadline.
    """

    prompts: Prompts = field(default_factory=Prompts)
    latest_cursor: Callable[[], str] = str
    replays: str = ""
    deadline: datetime | None = None


_NOTHING = Told()


@dataclass(eq=False, slots=True)
class RunAccess:
    """What a pair of good tokens opens, as long as the run lives.

    Attributes:
        snapshot: What the run may do.
        rate: How often it may call.
        told: What it was told.
        stores: What its calls work on; None: what the host works on.
        accepted: Done when the run's acceptance is durable; None, where it was before the token.
        calls: The calls that are being served. They end with the access.
        ended: Why it ended; None while it holds.
    """

    snapshot: Snapshot
    rate: Rate
    told: Told = _NOTHING
    stores: Stores | None = None
    accepted: asyncio.Future[Acceptance] | None = None
    calls: set[asyncio.Task[object]] = field(default_factory=set)
    ended: HostError | None = None

    async def until_accepted(self) -> None:
        """Wait until the run's acceptance is durable: nothing that it does comes before that.

        Raises:
            Unauthenticated: It is not accepted after all: there is no such run.
        """
        accepted = self.accepted
        if accepted is None:
            return
        if not accepted.done():
            await asyncio.wait({accepted})
        if accepted.cancelled() or accepted.exception() is not None or accepted.result().duplicate:
            raise Unauthenticated(_REFUSED)

    def end(self, why: HostError) -> None:
        """End every call that is being served, and refuse what comes."""
        if self.ended is None:
            self.ended = why
            for call in self.calls:
                call.cancel()


@dataclass(frozen=True, slots=True)
class _Issued:
    access: RunAccess
    instance_hash: bytes


class RunTokens:
    """Issues, checks and revokes run tokens; keeps their hashes, while runs are active.

    Args:
        limits: How often a run may call.
        monotonic: Tells seconds that only grow.
    """

    def __init__(self, *, limits: Limits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._issued: dict[bytes, _Issued] = {}

    def __len__(self) -> int:
        return len(self._issued)

    def issue(
        self,
        *,
        snapshot: Snapshot,
        instance_token: str,
        told: Told = _NOTHING,
        stores: Stores | None = None,
    ) -> str:
        """Return a new token for a run, good only together with the token of its instance.

        Args:
            snapshot: What the run may do.
            instance_token: The token of its instance.
            told: What it is told beside.
            stores: What its calls work on; None: what the host works on.
        """
        token = new_secret(RUN_TOKEN_PREFIX)
        rate = Rate(
            per_second=self._limits.host_calls_per_second,
            burst=self._limits.host_calls_burst,
            monotonic=self._monotonic,
        )
        access = RunAccess(snapshot, rate, told, stores)
        self._issued[hash_secret(token)] = _Issued(access, hash_secret(instance_token))
        return token

    def hold(self, token: str, until: asyncio.Future[Acceptance]) -> None:
        """Let the calls of a run wait until its acceptance is durable."""
        issued = self._issued.get(hash_secret(token))
        if issued is not None:
            issued.access.accepted = until

    def revoke(self, token: str, *, too_late: bool = False) -> None:
        """End a token, and the calls that are served with it; again is nothing.

        Args:
            token: The run's token.
            too_late: The run is at its deadline, which calls under way are told.
        """
        issued = self._issued.pop(hash_secret(token), None)
        if issued is not None:
            issued.access.end(
                DeadlineExceeded("the run is at its deadline")
                if too_late
                else Unauthenticated(_REFUSED)
            )

    def check(self, *, authorization: str | None, instance_token: str | None) -> RunAccess:
        """Return what both tokens open.

        Raises:
            Unauthenticated: Either is missing or wrong, the run has ended, or the instance is
                another's.
        """
        scheme, _, token = (authorization or "").partition(" ")
        issued = (
            self._issued.get(hash_secret(token.strip())) if scheme.lower() == "bearer" else None
        )
        # Both hashes are of secrets with 256 random bits: comparing them tells nothing by its time.
        if (
            issued is None
            or not instance_token
            or issued.instance_hash != hash_secret(instance_token)
        ):
            raise Unauthenticated(_REFUSED)
        return issued.access
