"""One call to one model: its turn, its attempts, its span, and what is told of its failure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from host_service.catalogue.model import Model
from host_service.errors import HostError
from host_service.limits import Limits
from host_service.models.channels import Channel, Channels
from host_service.models.failures import Kind, ProviderFailure, told
from host_service.models.retries import wait_seconds
from host_service.telemetry import ModelSpan, Telemetry
from stores.errors import SecretUnreadable

Result = TypeVar("Result")

_log = logging.getLogger("runmesh.models")
# What only an operator can mend is told to operators.
_FOR_OPERATORS = frozenset({Kind.AUTHENTICATION, Kind.QUOTA, Kind.NOT_FOUND})


class Call:
    """One call, while it is under way.

    Args:
        model: The model.
        channel: What it works with.
        span: Its span.
        limits: How often it is tried.
        patience_seconds: How long the one who asks will be there; None: no matter how long.

    Attributes:
        channel: What it works with.
        span: Its span.
    """

    def __init__(
        self,
        model: Model,
        channel: Channel,
        span: ModelSpan,
        *,
        limits: Limits,
        patience_seconds: float | None,
    ) -> None:
        self.channel = channel
        self.span = span
        self._model = model
        self._limits = limits
        self._attempts = 0
        self._until = None if patience_seconds is None else time.monotonic() + patience_seconds

    async def tried(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do a work that asks for a whole answer, again where that may help.

        Raises:
            ProviderFailure: It failed for good.
        """
        while True:
            await self.begin_attempt()
            try:
                return await work()
            except ProviderFailure as failure:
                await self.wait_to_try_again(failure)

    async def begin_attempt(self) -> None:
        """Wait until a request may be sent."""
        await self.channel.turns.sending()
        self._attempts += 1

    async def wait_to_try_again(self, failure: ProviderFailure) -> None:
        """Wait until a call may be sent again after a failure.

        Raises:
            ProviderFailure: It is not to be sent again: that would not help, or be too late.
        """
        if not failure.is_worth_trying or self._attempts >= self._limits.model_attempts:
            raise failure
        wait = wait_seconds(self._attempts, failure.detail.retry_after_seconds)
        left = None if self._until is None else self._until - time.monotonic()
        if wait > self._limits.model_retry_wait_seconds or (left is not None and wait >= left):
            raise failure
        _log.info("model %s: %s; trying again", self._model.id, failure.detail.kind)
        await asyncio.sleep(wait)


@asynccontextmanager
async def calling(
    operation: str,
    model: Model,
    *,
    channels: Channels,
    telemetry: Telemetry,
    limits: Limits,
    patience_seconds: float | None,
) -> AsyncIterator[Call]:
    """Make a call: wait for its turn, and tell of its failure as those who ask understand it.

    Raises:
        HostError: It failed.
    """
    secrets: tuple[str, ...] = ()
    with telemetry.model_span(
        operation, provider=model.provider, model_id=model.id, model_name=model.model_name
    ) as span:
        try:
            async with channels.opened(model) as channel, channel.turns.turn():
                secrets = channel.secrets
                yield Call(model, channel, span, limits=limits, patience_seconds=patience_seconds)
        except ProviderFailure as failure:
            span.fail(str(failure.detail.kind))
            _write_down(model, failure)
            # Its text is the provider's, and may have the key in it.
            raise told(failure, model.id, secrets=secrets) from None
        except SecretUnreadable:
            _log.warning("model %s: its API key cannot be decrypted", model.id)
            raise HostError(
                f"model {model.id!r}: the key that its API key is encrypted with is not there; an "
                "operator must give the host that key, or set the API key again",
                facts={"resource": model.id, "model_id": model.id, "model_error": "authentication"},
            ) from None


def _write_down(model: Model, failure: ProviderFailure) -> None:
    detail = failure.detail
    level = logging.WARNING if detail.kind in _FOR_OPERATORS else logging.INFO
    status = "" if detail.status is None else f" status={detail.status}"
    _log.log(level, "model %s failed: %s%s", model.id, detail.kind, status)
