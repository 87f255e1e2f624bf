"""Calls to models of a torture server, without a host around them."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from host_service.catalogue.documents import item_of
from host_service.catalogue.model import Model
from host_service.catalogue.shelf import Shelf
from host_service.errors import HostError
from host_service.limits import Limits
from host_service.models.answers import Answer, Delta, Question
from host_service.models.calls import ModelCalls
from host_service.models.endpoints import Address
from host_service.telemetry import Telemetry
from stores.secrets import Secret
from tests.integration.models.torture_server import TortureServer

#: The key that must be nowhere but in the header of a request.
KEY = "canary-key-0123456789"
HELLO = Question.of_text("hello")


@dataclass(frozen=True)
class Heard:
    """What came of a stream.

    Attributes:
        pieces: Its pieces.
        answer: The whole answer; None where the stream failed.
        error: Why it failed.
    """

    pieces: Sequence[Delta]
    answer: Answer | None
    error: HostError | None

    @property
    def text(self) -> str:
        """The text of the pieces."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def whole(self) -> Answer:
        """The whole answer, which agrees with its pieces."""
        assert self.error is None, self.error
        assert self.answer is not None
        assert self.answer.text == self.text
        reasoning = "".join(piece.reasoning_text for piece in self.pieces)
        assert (self.answer.reasoning_text or "") == reasoning
        calls: dict[int, list[str]] = {}
        for fragment in (each for piece in self.pieces for each in piece.tool_calls):
            if fragment.index not in calls:
                assert fragment.id
                assert fragment.name
                calls[fragment.index] = [fragment.id, fragment.name, fragment.arguments]
            else:
                assert (fragment.id, fragment.name) == ("", "")
                calls[fragment.index][2] += fragment.arguments
        told = [[each.id, each.name, each.arguments_json] for each in self.answer.tool_calls]
        assert [calls[index] for index in sorted(calls)] == told
        return self.answer


class Asking:
    """Calls to the models `chat`, `embedding` and `rerank` of a server.

    Attributes:
        models: The models; may be replaced.
        spans: The spans that were made.
        key: The key that they are called with; None: none.
    """

    def __init__(self, server: TortureServer, **limits: Any) -> None:
        self.server = server
        self.key: str | None = KEY
        self.spans = InMemorySpanExporter()
        self.models = {
            kind: Model(id=kind, kind=kind, provider="openai", model_name=f"{kind}-model")
            for kind in ("chat", "embedding", "rerank")
        }
        self._telemetry = Telemetry(service_version="1", host_id="host")
        self._telemetry._provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.limit(**limits)

    def limit(self, **limits: Any) -> None:
        """Go by other limits; to be called before the first call."""
        self.calls = ModelCalls(
            shelf=self._shelf,
            endpoints=self,
            limits=Limits().with_overrides(limits),
            telemetry=self._telemetry,
        )

    def change(self, kind: str, **changes: Any) -> None:
        """Have a model otherwise."""
        self.models[kind] = replace(self.models[kind], **changes)

    async def address_of(self, model: Model) -> Address:
        """Return where the server is."""
        key = None if self.key is None else Secret(self.key)
        return Address(model.base_url or self.server.base_url, key)

    def _shelf(self) -> Shelf:
        return Shelf.of(map(item_of, self.models.values()))

    async def stream(self, question: Question = HELLO, **more: Any) -> Heard:
        """Ask for a stream, and hear it to its end."""
        pieces: list[Delta] = []
        answer: Answer | None = None
        try:
            async with aclosing(self.calls.stream("chat", question, **more)) as stream:
                async for piece in stream:
                    assert answer is None, "something came after the answer"
                    if isinstance(piece, Answer):
                        answer = piece
                    else:
                        assert piece.text or piece.reasoning_text or piece.tool_calls
                        pieces.append(piece)
        except HostError as error:
            return Heard(pieces, answer, error)
        return Heard(pieces, answer, None)

    async def ask(self, question: Question = HELLO, **more: Any) -> Answer:
        """Ask for a whole answer."""
        return await self.calls.ask("chat", question, **more)

    async def refusal(self, question: Question = HELLO, **more: Any) -> HostError:
        """Ask for a whole answer that does not come."""
        with pytest.raises(HostError) as raised:
            await self.ask(question, **more)
        return raised.value

    async def close(self) -> None:
        """Close what is open."""
        await self.calls.close()
        self._telemetry.close()
