"""Values that golden messages are made of, each with something that is easily lost."""

from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.v1 import types_pb2

BEYOND_DOUBLE = 9007199254740993
"""2^53 + 1: the first integer that a double cannot hold."""

LARGEST = 9223372036854775807

TEXT = "plain, café, 明天下午三点, 👩‍💻, שלום"
"""Characters of one to four bytes, a joined one, and some written from the right."""

JSON = '{"big":9007199254740993,"f":1.0,"t":"明天 \\u00e9 \\\\u0000","l":[1,null,true,{}]}'
JSON_VALUE = '"\\ud83d\\ude00"'

SHA256 = bytes(range(32))
RUN_ID = "0198c0de-0000-7000-8000-000000000001"
TIME = Timestamp(seconds=1767225599, nanos=123456789)
EARLY = Timestamp(seconds=-62135596800)
LATE = Timestamp(seconds=253402300799, nanos=999999999)
METADATA = {"zeta": "last", "alpha": TEXT, "empty": "", "émile": "not ASCII"}


def label() -> types_pb2.LocalizedText:
    """A text in two languages."""
    return types_pb2.LocalizedText(text={"zh_Hans": "回声", "en_US": "Echo"})


def artifact(artifact_id: str = "art-1") -> types_pb2.ArtifactRef:
    """A reference with all that can be said of an artifact."""
    return types_pb2.ArtifactRef(
        artifact_id=artifact_id,
        type="image",
        mime_type="image/png",
        name="图.png",
        size_bytes=LARGEST,
        sha256=SHA256,
        summary=TEXT,
        expires_at=LATE,
        permissions=[types_pb2.ARTIFACT_PERMISSION_METADATA, types_pb2.ARTIFACT_PERMISSION_READ],
    )


def parts() -> list[types_pb2.ContentPart]:
    """One part of each kind, and an empty text, which is not the same as none."""
    inline = types_pb2.InlineContent(data=b"\x00\xff\x80", mime_type="text/plain", name="a.txt")
    url = types_pb2.UrlContent(url="https://example.org/é", mime_type="text/html", name="page")
    platform = types_pb2.PlatformContent(platform_id="sticker-1", mime_type="image/webp", name="s")
    return [
        types_pb2.ContentPart(text=TEXT),
        types_pb2.ContentPart(text=""),
        types_pb2.ContentPart(artifact=artifact()),
        types_pb2.ContentPart(inline=inline),
        types_pb2.ContentPart(url=url),
        types_pb2.ContentPart(platform=platform),
    ]


def chat_message() -> types_pb2.ChatMessage:
    """A message with everything that one can carry."""
    return types_pb2.ChatMessage(
        message_id="msg-1",
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        parts=parts(),
        reasoning_text=TEXT,
        tool_calls=[types_pb2.ToolCall(id="call-1", name="search", arguments_json=JSON)],
        tool_call_id="call-0",
        name="echo",
        artifacts=[artifact("art-2")],
        metadata=METADATA,
    )


def usage() -> types_pb2.TokenUsage:
    """Counts of which one is beyond a double, and one is zero and known."""
    return types_pb2.TokenUsage(
        model_id="model-1",
        input_tokens=BEYOND_DOUBLE,
        output_tokens=1,
        reasoning_tokens=0,
        cache_read_tokens=2,
        cache_write_tokens=3,
    )
