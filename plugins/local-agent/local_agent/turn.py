r"""One run of the local agent: from an event to the terminal result.

::

    input, passages --> model --> pieces of the answer --> the caller
                          ^  \-> calls of tools --> results --+
                          +------ what people said meanwhile <-+

An answer is one message, however many rounds of calls it takes: what is said between them is part
of it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing

from runmesh.v1.host_api_pb2 import KnowledgeHit

from runner_sdk import HostCallError, Result, RunContext, RunFailure

from .answer import Answer
from .follow_ups import FollowUps
from .heard import Heard, is_said
from .instructions import instructions
from .knowledge import Search
from .models import Models
from .settings import Settings
from .told import TurnPrompt, calls_tools
from .toolbox import Toolbox, usable
from .usage import Tally
from .wording import tool_limit, unseen_images

_EMPTY_OUTPUT = "runner.empty_output"


class Turn:
    """Answers one event."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._settings = Settings.of(ctx.config)
        self._models = Models(ctx, self._settings)
        self._search = Search(ctx, self._settings)
        self._toolbox = Toolbox(ctx)
        self._answer = Answer(ctx)
        self._tally = Tally()
        self._hits: Sequence[KnowledgeHit] = ()
        self._rounds = 0
        self._told_of_unseen = False

    async def results(self) -> AsyncGenerator[Result, None]:
        """Yields what is said, and how it ended."""
        heard = None
        if is_said(self._ctx):
            heard = await Heard.read(self._ctx, self._ctx.input, self._ctx.actor)
        if heard is not None and (notice := self._refusal(heard)):
            yield self._ctx.reply(notice)
            yield self._ctx.completed()
            return
        prompt = await self._prepare(heard)
        for warning in self._warnings():
            yield self._ctx.log(warning, "warning")
        async with aclosing(self._converse(prompt)) as results:
            async for result in results:
                yield result
        async with aclosing(self._end(prompt)) as results:
            async for result in results:
                yield result

    def cancelled(self) -> list[Result]:
        """Returns what is left to be told when the run is cancelled."""
        return [*self._toolbox.cancelled(), *map(self._ctx.usage, self._tally.usage)]

    def _refusal(self, heard: Heard) -> str:
        """Returns what is said without asking the model: there is nothing that it can see."""
        told = heard.told_to(self._models.current)
        if not (told.unseen and heard.is_only_images):
            return ""
        return unseen_images(self._ctx, told.unseen, self._models.current)

    async def _prepare(self, heard: Heard | None) -> TurnPrompt:
        """Asks the host for what the question needs, all of it at the same time."""
        try:
            async with asyncio.TaskGroup() as tasks:
                system = tasks.create_task(instructions(self._ctx, self._settings))
                hits = tasks.create_task(self._search.find(self._ctx.text if heard else ""))
                if self._settings.max_tool_rounds:
                    tasks.create_task(self._toolbox.open())
        except* HostCallError as errors:
            raise errors.exceptions[0] from None
        self._hits = hits.result()
        return TurnPrompt(
            ctx=self._ctx,
            settings=self._settings,
            system=system.result(),
            heard=heard,
            passages=self._search.told(self._hits),
            tools=self._toolbox.definitions,
        )

    def _warnings(self) -> list[str]:
        missing = [f"the model {each} is not there for this run" for each in self._models.missing]
        model = self._models.current
        if self._toolbox.definitions and not calls_tools(model):
            missing.append(f"the model {model.model_id} does not call tools: it is offered none")
        return [*missing, *self._search.warnings, *self._toolbox.warnings]

    async def _converse(self, prompt: TurnPrompt) -> AsyncGenerator[Result, None]:
        """Asks the model, calls what it wants called, and asks again, until it has answered."""
        async with AsyncExitStack() as stack:
            follow_ups = FollowUps(self._ctx, stack)
            while True:
                async with aclosing(self._ask(prompt)) as results:
                    async for result in results:
                        yield result
                if prompt.must_answer or not self._models.answer.tool_calls:
                    return
                for usage in self._tally.usage:
                    yield self._ctx.usage(usage)
                await follow_ups.listen()
                async with aclosing(self._call_tools(prompt)) as results:
                    async for result in results:
                        yield result
                prompt.rounds += await follow_ups.waiting()
                for warning in follow_ups.take_warnings():
                    yield self._ctx.log(warning, "warning")

    async def _ask(self, prompt: TurnPrompt) -> AsyncGenerator[Result, None]:
        """Asks once; yields the pieces of the answer."""
        known, streamed = len(self._models.failed), 0
        async with aclosing(self._models.ask(prompt)) as pieces:
            async for piece in pieces:
                if piece.reasoning_text:
                    for result in self._answer.think(piece.reasoning_text):
                        yield result
                if piece.text:
                    streamed += len(piece.text)
                    for result in self._say(piece.text, prompt):
                        yield result
        answer = self._models.answer
        # What the whole has beyond the pieces.
        for result in self._say(answer.text[streamed:], prompt):
            yield result
        self._tally.add(self._models.current.model_id, answer.usage)
        for model_id, error in self._models.failed[known:]:
            yield self._ctx.log(f"the model {model_id} failed: {error.message}", "warning")

    def _say(self, text: str, prompt: TurnPrompt) -> list[Result]:
        said: list[Result] = []
        if text.strip() and prompt.unseen and not self._told_of_unseen:
            self._told_of_unseen = True
            notice = unseen_images(self._ctx, prompt.unseen, self._models.current)
            said += self._answer.say(notice)
            self._answer.end_paragraph()
        return [*said, *self._answer.say(text)] if text else said

    async def _call_tools(self, prompt: TurnPrompt) -> AsyncGenerator[Result, None]:
        """Calls what the model wants called, and puts the results into the next question."""
        answer = self._models.answer
        await prompt.before_tools(usable(answer.message))
        async with aclosing(self._toolbox.call(answer.tool_calls)) as results:
            async for result in results:
                yield result
        prompt.rounds += [usable(answer.message), *self._toolbox.messages]
        self._answer.end_paragraph()
        self._rounds += 1
        prompt.must_answer = self._rounds >= self._settings.max_tool_rounds

    async def _end(self, prompt: TurnPrompt) -> AsyncGenerator[Result, None]:
        """Yields the whole message and the terminal result; lets the memory keep what it needs."""
        answer = self._models.answer
        finish_reason = "tool_limit" if prompt.must_answer else answer.finish_reason or "stop"
        if prompt.must_answer and not self._answer.text:
            for result in self._answer.say(tool_limit(self._ctx, self._rounds)):
                yield result
        for result in self._answer.completed(self._metadata()):
            yield result
        try:
            for usage in await prompt.after(answer.usage):
                self._tally.add(usage.model_id, usage)
        except HostCallError as error:
            yield self._ctx.log(f"the conversation was not summarized: {error.message}", "warning")
        if not self._answer.text and not self._toolbox.has_shown:
            if prompt.heard is not None:
                for usage in self._tally.usage:
                    yield self._ctx.usage(usage)
                raise RunFailure(
                    _EMPTY_OUTPUT,
                    f"the model {self._models.current.model_id} answered nothing ({finish_reason})",
                )
            finish_reason = "silent"
        yield self._ctx.completed(finish_reason, usage=self._tally.usage)

    def _metadata(self) -> dict[str, str]:
        model_id = self._models.current.model_id
        sources = self._search.sources(
            self._hits, answer=self._answer.text, question=self._ctx.text
        )
        metadata = {"model": model_id, **sources}
        if model_id != self._settings.model_ids[0]:
            metadata["fallback_for"] = self._settings.model_ids[0]
        return metadata
