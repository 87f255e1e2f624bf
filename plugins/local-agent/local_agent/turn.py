"""One run of the local agent: from an event to the terminal result."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from runmesh.v1.context_pb2 import ModelResource

from runner_sdk import Result, RunContext
from runner_sdk.messages import user_message

from .models import Models, Question
from .settings import Settings


class Turn:
    """Answers one event."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._settings = Settings.of(ctx.config)
        self._models = Models(ctx, self._settings)

    async def results(self) -> AsyncGenerator[Result, None]:
        """Yields what is said, and how it ended."""
        said: list[str] = []
        async with aclosing(self._models.ask(self._question)) as pieces:
            async for piece in pieces:
                if piece.reasoning_text:
                    yield self._ctx.reasoning(piece.reasoning_text)
                if piece.text:
                    said.append(piece.text)
                    yield self._ctx.delta(piece.text)
        answer = self._models.answer
        yield self._ctx.message("".join(said), metadata={"model": self._models.current.model_id})
        usage = [answer.usage] if answer.usage else []
        yield self._ctx.completed(answer.finish_reason, usage=usage)

    async def _question(self, _: ModelResource) -> Question:
        return Question([*self._settings.prompt, user_message(self._ctx.text)])
