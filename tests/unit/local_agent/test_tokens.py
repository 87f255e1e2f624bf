# ruff: noqa: RUF001 - signs of Chinese text
"""The estimate of tokens, held against what tokenizers counted."""

import time

import pytest
from local_agent.tokens import IMAGE_TOKENS, message_tokens, text_tokens, tools_tokens
from runmesh.v1 import types_pb2
from runmesh.v1.types_pb2 import ChatMessage, ContentPart, ToolCall, ToolDefinition

# A text, and how many tokens the vocabularies cl100k and o200k make of it.
COUNTED = {
    "english": (
        "The run token protects every call that a runner makes to the host, and ends with it.",
        19,
        19,
    ),
    "chinese": ("运行令牌保护的是什么？它只在一次运行期间有效，主机会核对每一次调用。", 38, 23),
    "traditional": ("這個系統的設計原則是簡單可靠，請問您需要什麼樣的協助呢？", 46, 26),
    "japanese": ("明日の午後三時からプロジェクトのレビュー会議を行います。", 26, 17),
    "russian": ("Завтра в три часа дня состоится совещание по обзору проекта.", 28, 17),
    "emoji": ("😀🎉👍🏽👩‍👩‍👧‍👦🇨🇳❤️🔥🚀✨🤖", 49, 28),
    "code": (
        """def add(first: int, second: int) -> int:
    return first + second  # both

class Account:
    def __init__(self, *, name: str) -> None:
        self.name = name
""",
        46,
        46,
    ),
    "json": ('{"id": 17, "name": "user-17", "scores": [3.75, 12, 0.5], "ok": true}', 35, 35),
    "encoded": ("aGVsbG8gd29ybGQ5LCB0aGlzIGlzIGEgdGVzdCBvZiBiYXNlNjQgZGF0YQ0KMTIzNDU2Nzg5", 54, 46),
    "digest": ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 43, 43),
    "url": ("https://example.com/api/v1/users/42/posts?page=3&sort=asc#top", 20, 20),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_estimate_is_near_what_tokenizers_count_and_on_the_high_side(kind: str) -> None:
    text, smaller, larger = COUNTED[kind]
    estimate = text_tokens(text)

    assert estimate >= 0.85 * max(smaller, larger)
    assert estimate <= 1.6 * max(smaller, larger)


@pytest.mark.parametrize(
    "text", ["a" * 300_000, "a1" * 150_000, "aA" * 150_000, "你" * 100_000, " " * 300_000]
)
def test_no_text_takes_long_to_estimate(text: str) -> None:
    began = time.perf_counter()
    assert text_tokens(text) > 0
    # Quadratic work would take minutes.
    assert time.perf_counter() - began < 20


def test_nothing_is_free_in_a_message() -> None:
    image = ContentPart(artifact=types_pb2.ArtifactRef(type="image", mime_type="image/png"))
    call = ToolCall(id="call-1", name="lookup", arguments_json='{"number": 12345}')
    empty = message_tokens(ChatMessage(role=types_pb2.CHAT_ROLE_USER))

    assert text_tokens("") == 0
    assert empty > 0
    assert message_tokens(ChatMessage(parts=[image])) == empty + IMAGE_TOKENS
    assert message_tokens(ChatMessage(tool_calls=[call])) > empty + text_tokens(call.arguments_json)
    tool = ToolDefinition(name="lookup", parameters_schema_json='{"type": "object"}')
    assert tools_tokens([tool, tool]) > tools_tokens([tool]) > tools_tokens([])
