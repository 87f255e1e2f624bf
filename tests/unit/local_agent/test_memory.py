"""What a prompt has beside the turn: as much of the conversation as fits, and never too much."""

from collections.abc import Sequence

from local_agent.budget import Budget
from local_agent.memory import Memory
from local_agent.settings import Settings
from local_agent.tokens import messages_tokens
from runmesh.v1.context_pb2 import MODEL_KIND_CHAT, ModelResource
from runmesh.v1.types_pb2 import ChatMessage

from runner_sdk import RunContext
from runner_sdk.messages import system_message, user_message
from tests.unit.local_agent.in_a_run import Runs


def model(window: int = 4000) -> ModelResource:
    return ModelResource(
        model_id="model",
        kind=MODEL_KIND_CHAT,
        provider="stand-in",
        name="model",
        context_window_tokens=window,
    )


def texts(messages: Sequence[ChatMessage]) -> list[str]:
    return ["".join(part.text for part in message.parts) for message in messages]


async def prompt_in(
    runs: Runs,
    said: str,
    *,
    window: int = 4000,
    settings: Settings | None = None,
    system: str = "Be brief.",
) -> list[ChatMessage]:
    found: list[ChatMessage] = []

    async def work(ctx: RunContext) -> str:
        memory = Memory(ctx, model=model(window), settings=settings or Settings(extra_args={}))
        found[:] = await memory.prompt(
            system=[system_message(system)], turn=[user_message(ctx.text)], tools=[]
        )
        await memory.after(usage=None)
        return f"answer to {said[:40]}"

    await runs.run(said, work)
    return found


async def test_what_was_said_before_stands_between_instructions_and_question() -> None:
    async with Runs() as runs:
        await prompt_in(runs, "first")
        assert texts(await prompt_in(runs, "second")) == [
            "Be brief.",
            "first",
            "answer to first",
            "second",
        ]


async def test_the_newest_that_fits_is_told_of_a_long_conversation() -> None:
    async with Runs() as runs:
        for number in range(200):
            runs.host.add_history(("user", f"question {number}"), ("assistant", "word " * 60))
        prompt = await prompt_in(runs, "now")

    told = texts(prompt)
    assert "question 199" in told
    assert "question 0" not in told
    assert messages_tokens(prompt) <= Budget.of(model(), Settings(extra_args={})).prompt


async def test_a_long_conversation_is_summarized_and_goes_on_from_there() -> None:
    async with Runs() as runs:
        runs.host.add_model("model", "Ada likes tea.")
        for number in range(60):
            await prompt_in(runs, f"question {number} " + "word " * 40)
        kept = runs.host.state("conversation")["checkpoint"]
        prompt = await prompt_in(runs, "now")

    assert kept["summary"] == "Ada likes tea."
    assert "Ada likes tea." in texts(prompt)[1]
    assert texts(prompt)[2].startswith("question ")
