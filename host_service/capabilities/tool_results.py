"""What tools answered, as the contract has it: small things inline, large ones as artifacts."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from runmesh.v1 import host_api_pb2, types_pb2

from host_service.capabilities.uploads import Owner
from host_service.identity import new_id
from host_service.limits import Limits
from host_service.runs.artifact_refs import artifact_ref, type_of
from host_service.tools.mending import clean_json, clean_text, depth_of
from stores.artifacts import Artifacts
from stores.records import ArtifactHeader, ArtifactRecord

if TYPE_CHECKING:
    from host_service.tools.session import Answer

_TYPE = "tool_result"
_JSON, _TEXT, _BYTES = "application/json", "text/plain; charset=utf-8", "application/octet-stream"
_MOST_PARTS = 64
# As deep as JSON may be nested in the contract.
_DEEPEST = 64
_LONGEST_WORD = 255
_LONGEST_URL = 2048


@dataclass(frozen=True, slots=True)
class _Blob:
    data: bytes
    mime_type: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Link:
    url: str
    mime_type: str
    name: str


_Part = str | _Blob | _Link


class ToolResults:
    """Turns answers of tools into the contract's.

    Args:
        artifacts: Where large ones go.
        limits: What is large.
        clock: Tells when they came.
    """

    def __init__(
        self, *, artifacts: Artifacts, limits: Limits, clock: Callable[[], datetime]
    ) -> None:
        self._artifacts = artifacts
        self._limits = limits
        self._clock = clock

    async def take(
        self, tool_name: str, answer: Answer, owner: Owner, *, expires_at: datetime | None = None
    ) -> host_api_pb2.CallToolResponse:
        """Return an answer, and store of it what is too large to be carried.

        Args:
            tool_name: The tool.
            answer: What it answered.
            owner: Whose the artifacts are.
            expires_at: When they go; None: with their conversation.
        """
        keeping = _Keeping(self._artifacts, owner, self._clock(), expires_at, tool_name)
        parts, result_json = _parts_of(answer)
        response = host_api_pb2.CallToolResponse(is_error=bool(getattr(answer, "is_error", True)))
        texts = [each for each in parts if isinstance(each, str)]
        size = sum(len(each.encode()) for each in texts) + len((result_json or "").encode())
        if size > self._limits.tool_result_bytes:
            await self._give_large(response, keeping, texts, result_json, size)
            parts = [each for each in parts if not isinstance(each, str)]
        elif result_json is not None:
            response.result_json = result_json
        for each in parts[:_MOST_PARTS]:
            response.parts.append(await self._part(keeping, each))
        if len(parts) > _MOST_PARTS:
            left_out = f"[{len(parts) - _MOST_PARTS} more parts were left out]"
            response.parts.append(types_pb2.ContentPart(text=left_out))
        return response

    async def _give_large(
        self,
        response: host_api_pb2.CallToolResponse,
        keeping: _Keeping,
        texts: list[str],
        result_json: str | None,
        size: int,
    ) -> None:
        """Store a result whole, and carry its beginning along."""
        text, mime_type = _whole(texts, result_json)
        record = await keeping.keep(text.encode(), mime_type, _TYPE)
        response.artifact.CopyFrom(artifact_ref(record))
        beginning = _cut(text, self._limits.tool_preview_bytes)
        response.preview = f"{beginning}\n[truncated: the result has {size} bytes in all]"

    async def _part(self, keeping: _Keeping, part: _Part) -> types_pb2.ContentPart:
        if isinstance(part, str):
            return types_pb2.ContentPart(text=part)
        if isinstance(part, _Link):
            url = types_pb2.UrlContent(url=part.url, mime_type=part.mime_type, name=part.name)
            return types_pb2.ContentPart(url=url)
        if len(part.data) <= self._limits.tool_result_bytes:
            inline = types_pb2.InlineContent(
                data=part.data, mime_type=part.mime_type, name=part.name
            )
            return types_pb2.ContentPart(inline=inline)
        record = await keeping.keep(part.data, part.mime_type, type_of(part.mime_type), part.name)
        return types_pb2.ContentPart(artifact=artifact_ref(record))


@dataclass(frozen=True, slots=True)
class _Keeping:
    """Where what is too large to be carried goes."""

    artifacts: Artifacts
    owner: Owner
    at: datetime
    expires_at: datetime | None
    tool_name: str

    async def keep(self, data: bytes, mime_type: str, kind: str, name: str = "") -> ArtifactRecord:
        header = ArtifactHeader(
            artifact_id=new_id(),
            workspace=self.owner.workspace,
            bot=self.owner.bot,
            conversation_key=self.owner.conversation_key,
            run_id=self.owner.run_id,
            type=kind,
            mime_type=mime_type,
            name=name or self.tool_name,
            summary=f"a result of the tool {self.tool_name}",
            created_at=self.at,
            expires_at=self.expires_at,
        )
        return await self.artifacts.write(header, _chunks(data), size_bytes=len(data))


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    step = 1024 * 1024
    for start in range(0, len(data), step):
        yield data[start : start + step]


def _parts_of(answer: Answer) -> tuple[list[_Part], str | None]:
    """Return the parts of an answer and its JSON value, neither of which repeats the other."""
    content = getattr(answer, "content", None)
    if content is None:
        return ["the tool asks for input of a person, which nobody can give here"], None
    parts = [part for each in content for part in _read(each)]
    structured = getattr(answer, "structured_content", None)
    if structured is None:
        return parts, None
    value = clean_json(structured)
    result_json = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if depth_of(value, _DEEPEST) > _DEEPEST:
        # No field of the contract may have it; as a text it is as good.
        return (parts or [result_json]), None
    kept = [each for each in parts if not (isinstance(each, str) and _repeats(each, value))]
    return kept, result_json


def _repeats(text: str, value: Any) -> bool:
    """Return whether a text says the same as the JSON value beside it."""
    # What is no object is wrapped in one, and its text is not.
    inner = value.get("result") if isinstance(value, dict) and len(value) == 1 else None
    if isinstance(inner, str) and text == inner:
        return True
    try:
        said = clean_json(json.loads(text))
    except (ValueError, RecursionError):
        return False
    shown = _canonical(said)
    return shown == _canonical(value) or (inner is not None and shown == _canonical(inner))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _read(content: Any) -> Iterator[_Part]:
    kind = content.type
    if kind == "text":
        yield clean_text(content.text)
    elif kind in {"image", "audio"}:
        yield _blob(content.data, content.mime_type, "")
    elif kind == "resource_link":
        yield _link(str(content.uri), content.mime_type or "", content.name or "")
    elif kind == "resource":
        resource = content.resource
        if (text := getattr(resource, "text", None)) is not None:
            yield clean_text(text)
        else:
            name = str(resource.uri).rstrip("/").rpartition("/")[2]
            yield _blob(resource.blob, resource.mime_type or "", name)


def _blob(data: str, mime_type: str, name: str) -> _Part:
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{_word(mime_type) or 'bytes'} whose data is no base64]"
    return _Blob(decoded, _word(mime_type) or _BYTES, _word(name))


def _link(url: str, mime_type: str, name: str) -> _Part:
    url = clean_text(url)
    if not 0 < len(url.encode()) <= _LONGEST_URL:
        return f"[a link to {_word(name)} that is too long to be carried]"
    return _Link(url, _word(mime_type), _word(name))


def _word(text: str) -> str:
    return _cut(clean_text(text), _LONGEST_WORD)


def _whole(texts: list[str], result_json: str | None) -> tuple[str, str]:
    """Return all that a result says as one text, and its media type."""
    if result_json is None:
        return "\n\n".join(texts), _TEXT
    if not texts:
        return result_json, _JSON
    both = json.dumps({"texts": texts}, ensure_ascii=False)
    return f'{both[:-1]}, "structured": {result_json}}}', _JSON


def _cut(text: str, most_bytes: int) -> str:
    # A character has four bytes at most: of a long text no more than its beginning is encoded.
    data = text[:most_bytes].encode()
    return data[:most_bytes].decode(errors="ignore")
