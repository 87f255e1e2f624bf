"""What a prompt has beside the turn: as much of the conversation as fits, and never too much."""

import itertools
import time
from collections.abc import Sequence

import pytest
from local_agent.budget import Budget
from local_agent.memory import Memory
from local_agent.settings import Settings
from local_agent.tokens import messages_tokens, text_tokens
from runmesh.v1 import host_api_pb2 as api
from runmesh.v1 import types_pb2
from runmesh.v1.context_pb2 import MODEL_ABILITY_VISION, MODEL_KIND_CHAT, ModelResource
from runmesh.v1.types_pb2 import ChatMessage, TokenUsage, ToolCall

from runner_sdk import RunContext, RunFailure
from runner_sdk.messages import system_message, tool_message, user_message
from runner_sdk.results import assistant_message
from tests.unit.local_agent.in_a_run import Runs


def model(window: int = 4000, *, sees: bool = False) -> ModelResource:
    return ModelResource(
        abilities=[MODEL_ABILITY_VISION] if sees else [],
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
    more: Sequence[ChatMessage] = (),
    usage: TokenUsage | None = None,
) -> list[ChatMessage]:
    """Runs a turn that says something, and returns the prompt that it had."""
    found: list[ChatMessage] = []

    async def work(ctx: RunContext) -> str:
        memory = Memory(ctx, model=model(window), settings=settings or Settings(extra_args={}))
        found[:] = await memory.prompt(
            system=[system_message(system)], turn=[user_message(ctx.text), *more], tools=[]
        )
        await memory.after(usage=usage)
        return f"answer to {said[:40]}"

    await runs.run(said, work)
    return found


def most(window: int = 4000) -> int:
    """Returns how many tokens a prompt may have."""
    return Budget.of(model(window), Settings(extra_args={})).prompt


async def say_much(runs: Runs, turns: int, *, first: int = 0) -> list[list[ChatMessage]]:
    """Has so many turns, each of about 70 tokens; returns their prompts."""
    return [
        await prompt_in(runs, f"question {number} " + "word " * 40)
        for number in range(first, first + turns)
    ]


def begins_as(after: Sequence[ChatMessage], before: Sequence[ChatMessage]) -> bool:
    """Returns whether a prompt begins as the one before: all but its quotes and its question."""
    stable = [each for each in before[:-1] if not texts([each])[0].startswith("[Quoted")]
    return list(after[: len(stable)]) == stable


def called(call_id: str, result: str | None = None) -> list[ChatMessage]:
    """Returns a round: an answer that calls a tool, and the result where there is one."""
    call = ToolCall(id=call_id, name="lookup", arguments_json='{"n":1}')
    asked = ChatMessage(role=types_pb2.CHAT_ROLE_ASSISTANT, tool_calls=[call])
    return [asked] if result is None else [asked, tool_message(call_id, result, name="lookup")]


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
        await say_much(runs, 60)
        kept = runs.host.state("conversation")["checkpoint"]
        prompt = await prompt_in(runs, "now")

    assert kept["summary"] == "Ada likes tea."
    assert "Ada likes tea." in texts(prompt)[1]
    assert texts(prompt)[2].startswith("question ")


async def test_without_a_model_that_answers_the_summary_is_made_of_excerpts() -> None:
    async with Runs() as runs:
        await say_much(runs, 60)
        kept = runs.host.state("conversation")["checkpoint"]

    assert "question" in kept["summary"]
    assert "word word" in kept["summary"]


async def test_prompt_begins_as_the_one_before_until_the_next_checkpoint() -> None:
    async with Runs() as runs:
        runs.host.add_model("model", lambda _: f"Notes. {len(runs.host.calls)}")
        prompts = await say_much(runs, 60)
    changes = [
        number
        for number, (before, after) in enumerate(itertools.pairwise(prompts))
        if not begins_as(after, before)
    ]

    assert 1 <= len(changes) <= 8
    for number in changes:
        assert texts(prompts[number])[:2] != texts(prompts[number + 1])[:2]


async def test_checkpoint_of_another_run_is_not_overwritten() -> None:
    async with Runs() as runs:

        def summarize(request: object) -> str:
            other = {"version": 1, "cursor": "c00000003", "summary": "Theirs.", "passages": 2}
            runs.host.set_state("conversation", {"checkpoint": other})
            return "Ours."

        runs.host.add_model("model", summarize)
        for number in range(60):
            if "checkpoint" in runs.host.state("conversation"):
                break
            await say_much(runs, 1, first=number)
        assert runs.host.state("conversation")["checkpoint"]["summary"] == "Theirs."


@pytest.mark.parametrize(
    "kept", ["text", 7, {"version": 2}, {"version": 1, "cursor": "", "summary": "x"}, [None]]
)
async def test_state_of_another_form_is_as_none(kept: object) -> None:
    async with Runs() as runs:
        runs.host.set_state("conversation", {"checkpoint": kept, "tool_rounds": kept})
        runs.host.set_state("runner", {"token_ratios": kept})
        runs.host.add_history(("user", "hello"), ("assistant", "hi"))
        assert texts(await prompt_in(runs, "now")) == ["Be brief.", "hello", "hi", "now"]


async def test_checkpoint_whose_place_is_gone_is_left_out() -> None:
    gone = {"version": 1, "cursor": "c99999999", "summary": "Old.", "passages": 2}
    async with Runs() as runs:
        runs.host.set_state("conversation", {"checkpoint": gone})
        runs.host.add_history(("user", "hello"), ("assistant", "hi"))
        assert texts(await prompt_in(runs, "now")) == ["Be brief.", "hello", "hi", "now"]


async def test_without_state_the_prompt_fits_and_seldom_begins_anew() -> None:
    async with Runs(state_scopes=()) as runs:
        prompts = await say_much(runs, 60)
    anew = sum(not begins_as(after, before) for before, after in itertools.pairwise(prompts))

    assert all(messages_tokens(prompt) <= most() for prompt in prompts)
    assert "question 58" in " ".join(texts(prompts[-1]))
    assert "question 0 " not in " ".join(texts(prompts[-1]))
    assert anew <= 20


async def test_one_huge_message_is_cut_in_the_middle() -> None:
    said = "beginning " + "字" * 100_000 + " ending"
    async with Runs() as runs:
        prompt = await prompt_in(runs, said)
        later = await prompt_in(runs, "and now?")

    for told in (texts(prompt)[-1], texts(later)[1]):
        assert told.startswith("beginning ")
        assert "characters left out" in told
    assert texts(prompt)[-1].endswith(" ending")
    assert texts(later)[-1] == "and now?"
    assert messages_tokens(prompt) <= most()
    assert messages_tokens(later) <= most()


async def test_huge_results_are_cut_before_the_question_is() -> None:
    question = "which of them? " * 400
    more = [*called("a", "row " * 50_000), *called("b", "small"), *called("c", "line " * 50_000)]
    async with Runs() as runs:
        prompt = await prompt_in(runs, question, more=more)

    told = texts(prompt)
    assert question in told
    assert "small" in told
    assert sum("characters left out" in each for each in told) == 2
    assert messages_tokens(prompt) <= most()


async def test_rounds_go_where_even_calls_are_too_many() -> None:
    rounds = [message for number in range(400) for message in called(f"call-{number}", "ok")]
    async with Runs() as runs:
        prompt = await prompt_in(runs, "go on", more=rounds)

    assert messages_tokens(prompt) <= most()
    assert prompt[1].role == types_pb2.CHAT_ROLE_USER
    assert [each.tool_calls[0].id for each in prompt if each.tool_calls][-1] == "call-399"
    assert prompt[2].tool_calls[0].id == prompt[3].tool_call_id


async def test_instructions_that_leave_no_room_are_a_failure_that_names_the_setting() -> None:
    async def work(ctx: RunContext) -> str:
        memory = Memory(ctx, model=model(), settings=Settings(extra_args={}))
        with pytest.raises(RunFailure) as failure:
            await memory.prompt(
                system=[system_message("rule " * 5000)], turn=[user_message(ctx.text)], tools=[]
            )
        assert failure.value.code == "local-agent.prompt_too_large"
        return failure.value.message

    async with Runs() as runs:
        outcome = await runs.run("hello", work)
    assert "field `prompt`" in outcome.text
    assert "4000 tokens" in outcome.text


async def test_thousands_of_turns_cost_a_turn_no_more_than_a_few_pages() -> None:
    async with Runs() as runs:
        for number in range(5000):
            runs.host.add_history(("user", f"question {number}"), ("assistant", "word " * 50))
        await prompt_in(runs, "first")
        before = len(runs.host.calls)
        await prompt_in(runs, "second")
        later = runs.host.calls[before:]

    assert sum(call.method == "PageHistory" for call in runs.host.calls[:before]) <= 6
    assert sum(call.method == "PageHistory" for call in later) <= 2


async def test_cancelled_calls_are_told_with_a_result_for_each() -> None:
    async def work(ctx: RunContext) -> str:
        memory = Memory(ctx, model=model(), settings=Settings(extra_args={}))
        await memory.prompt(system=[], turn=[user_message(ctx.text)], tools=[])
        await memory.before_tools([user_message(ctx.text), *called("a", "yes"), *called("b")])
        return "cut off"

    async with Runs() as runs:
        await runs.run("look", work)
        prompt = await prompt_in(runs, "what came of it?")

    roles = [types_pb2.ChatRole.Name(each.role)[10:].lower() for each in prompt]
    assert roles == ["system", "user", *["assistant", "tool"] * 2, "assistant", "user"]
    assert texts(prompt)[3] == "yes"
    assert "No result" in texts(prompt)[5]
    assert prompt[4].tool_calls[0].id == prompt[5].tool_call_id == "b"


async def test_who_speaks_is_told_in_a_group() -> None:
    item = api.TranscriptItem(role=types_pb2.CHAT_ROLE_USER, text="hello")
    item.actor.name = "Ada"

    async def work(ctx: RunContext) -> str:
        ctx.proto.conversation.launcher_type = "group"
        memory = Memory(ctx, model=model(), settings=Settings(extra_args={}))
        prompt = await memory.prompt(system=[], turn=[user_message("now")], tools=[])
        return texts(prompt)[0]

    async with Runs() as runs:
        runs.host.add_history(item)
        assert (await runs.run("now", work)).text == "Ada: hello"


async def test_answers_that_were_cut_off_are_marked_and_texts_cut_by_the_host_too() -> None:
    half = api.TranscriptItem(role=types_pb2.CHAT_ROLE_ASSISTANT, text="It is", incomplete=True)
    async with Runs() as runs:
        runs.host.add_history(("user", "long " * 80_000), half)
        told = texts(await prompt_in(runs, "now"))

    assert "the whole text is the artifact" in told[1]
    assert told[2].startswith("It is\n[This answer was cut off")


async def test_calls_and_results_of_others_are_not_told() -> None:
    lone = api.TranscriptItem(
        role=types_pb2.CHAT_ROLE_TOOL, kind=api.TRANSCRIPT_KIND_TOOL_RESULT, text="42"
    )
    async with Runs() as runs:
        runs.host.add_history(("user", "hello"), lone, ("assistant", "hi"))
        assert texts(await prompt_in(runs, "now")) == ["Be brief.", "hello", "hi", "now"]


async def test_older_messages_with_words_of_the_question_are_quoted() -> None:
    async with Runs() as runs:
        runs.host.add_model("model", "Notes.")
        await prompt_in(runs, "The password of the boathouse is heliotrope.")
        await say_much(runs, 40)
        prompt = await prompt_in(runs, "What was the password of the boathouse?")
        other = await prompt_in(runs, "Thanks!")

    assert "heliotrope" in texts(prompt)[-2]
    assert texts(prompt)[-2].startswith("[Quoted from earlier")
    assert "Quoted" not in " ".join(texts(other))


async def test_what_a_provider_counts_makes_later_prompts_shorter() -> None:
    async with Runs(state_scopes=("runner",)) as runs:
        for number in range(200):
            runs.host.add_history(("user", f"question {number}"), ("assistant", "word " * 60))
        first = await prompt_in(runs, "now")
        reported = TokenUsage(model_id="model", input_tokens=messages_tokens(first) * 2)
        await prompt_in(runs, "now", usage=reported)
        ratio = runs.host.state("runner")["token_ratios"]["model"]
        later = await prompt_in(runs, "now", usage=TokenUsage(model_id="model", input_tokens=10**6))

        assert 1.5 < ratio < 2.5
        assert messages_tokens(later) < messages_tokens(first) / 1.4
        # A count of something else, such as of a whole run, is not believed.
        assert runs.host.state("runner")["token_ratios"]["model"] == ratio


@pytest.mark.parametrize("sees", [True, False])
async def test_earlier_pictures_are_shown_while_they_are_there(sees: bool) -> None:
    async def work(ctx: RunContext) -> str:
        memory = Memory(ctx, model=model(20_000, sees=sees), settings=Settings(extra_args={}))
        prompt = await memory.prompt(system=[], turn=[user_message("now")], tools=[])
        kinds = [part.WhichOneof("content") for each in prompt for part in each.parts]
        return f"{' '.join(map(str, kinds))}: {' '.join(texts(prompt))}"

    async with Runs() as runs:
        kept, gone = (
            runs.host.add_artifact(b"x", type="image", mime_type="image/png", name=name)
            for name in ("cat.png", "gone.png")
        )
        gone.artifact_id = "no-such"
        runs.host.add_history(user_message("look:", kept, gone))
        # Nobody may show a model pictures as its own.
        runs.host.add_history(assistant_message(["mine:", kept]))
        outcome = await runs.run("now", work)

    shown = "text artifact text text text" if sees else "text text text"
    first = "" if sees else "[image cat.png]"
    assert outcome.text == f"{shown}: look:{first}[image gone.png] mine:[image cat.png] now"


@pytest.mark.parametrize("window", [4000, 128_000, 2_000_000])
@pytest.mark.parametrize("pattern", ["你好世界", "Some words 12345. "])
async def test_message_of_a_megabyte_holds_up_no_other_run(window: int, pattern: str) -> None:
    # No text that was weighed before.
    said = f"{window} " + (pattern * 250_000)[:1_000_000]
    begun = time.thread_time()
    weighed = text_tokens("x" + said)
    seconds_to_weigh = time.thread_time() - begun
    taken: list[float] = []

    async def work(ctx: RunContext) -> str:
        memory = Memory(ctx, model=model(window), settings=Settings(extra_args={}))
        turn = [user_message(said)]
        before = time.thread_time()
        prompt = await memory.prompt(system=[], turn=turn, tools=[])
        taken.append(time.thread_time() - before)
        assert messages_tokens(prompt) <= most(window)
        assert messages_tokens(prompt) > min(weighed, most(window) * 0.9)
        return "done"

    async with Runs() as runs:
        await runs.run("hello", work)
    # The loop that all runs are on did next to nothing of it.
    assert taken[0] < seconds_to_weigh / 2 + 0.02
