"""Files that came along: which are pictures, which are text that a model can be shown."""

import json
from collections.abc import Sequence

from runmesh.v1.types_pb2 import ArtifactRef, ContentPart

from runner_sdk import HostCallError, RunContext

LARGEST_TEXT_BYTES = 64 * 1024
"""A larger file is named, not shown."""

_MOST_TEXT_BYTES = 256 * 1024
_LARGEST_IMAGE_BYTES = 20 * 1024 * 1024
_IMAGE = "image/"

_TEXT_TYPES = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
_TEXT_ENDINGS = (
    *(".c", ".cfg", ".conf", ".cpp", ".css", ".csv", ".go", ".h", ".html", ".ini", ".java", ".js"),
    *(".json", ".jsonl", ".log", ".md", ".py", ".rb", ".rs", ".rst", ".sh", ".sql", ".toml"),
    *(".ts", ".tsv", ".txt", ".xml", ".yaml", ".yml"),
)
_IMAGE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
_ANY_TYPE = "application/octet-stream"
_LONGEST_NAME = 200


def is_image(part: ContentPart) -> bool:
    """Returns whether a part is a picture."""
    kind = part.WhichOneof("content")
    if kind is None or kind == "text":
        return False
    content = getattr(part, kind)
    if kind == "artifact" and content.type == "image":
        return True
    if content.mime_type:
        return bool(content.mime_type.startswith(_IMAGE))
    return kind == "url" and _ends(content.name or content.url.partition("?")[0], _IMAGE_ENDINGS)


def is_viewable(part: ContentPart) -> bool:
    """Returns whether a picture can be shown to a model that sees.

    A platform's own pictures cannot be fetched; of the others the media type must be known, and
    they must not be too large.
    """
    match part.WhichOneof("content"):
        case "artifact":
            ref = part.artifact
            return ref.mime_type.startswith(_IMAGE) and ref.size_bytes <= _LARGEST_IMAGE_BYTES
        case "inline":
            return part.inline.mime_type.startswith(_IMAGE)
        case "url":
            return is_image(part)
    return False


def name_of(part: ContentPart) -> str:
    """Returns what people call a part, on one line."""
    kind = part.WhichOneof("content")
    if kind is None or kind == "text":
        return ""
    content = getattr(part, kind)
    name = content.name or (content.url if kind == "url" else "")
    name = " ".join(name.split())[:_LONGEST_NAME]
    return name or ("image" if is_image(part) else "file")


def note_of(part: ContentPart, remark: str = "") -> str:
    """Returns what a model is told of a part that it is not shown.

    Args:
        part: The part.
        remark: Why it is not shown.
    """
    kind = part.WhichOneof("content") or ""
    content = getattr(part, kind)
    word = "image" if is_image(part) else (getattr(content, "type", "") or "file")
    # The name is whatever a stranger chose: quoted, it cannot end the note.
    facts = [json.dumps(name_of(part), ensure_ascii=False), content.mime_type]
    if kind == "artifact":
        facts += [f"{content.size_bytes} bytes", content.summary[:_LONGEST_NAME]]
    elif kind == "url":
        facts.append(content.url)
    return f"[{word}: {', '.join(filter(None, [*facts, remark]))}]"


class TextFiles:
    """Reads files that are text and small enough to be shown as a whole, so many as that is."""

    def __init__(self, ctx: RunContext) -> None:
        self._artifacts = ctx.host.artifacts
        self._may_read = ctx.proto.context.available_apis.artifact_read
        self._left_bytes = _MOST_TEXT_BYTES

    async def read(self, part: ContentPart) -> str | None:
        """Returns the text of a part; None where it is none, is too large or cannot be read."""
        data = None
        match part.WhichOneof("content"):
            case "inline" if _may_be_text(part.inline.mime_type, part.inline.name):
                data = part.inline.data
            case "artifact" if _may_be_text(part.artifact.mime_type, part.artifact.name):
                data = await self._read(part.artifact)
        if data is None or len(data) > min(LARGEST_TEXT_BYTES, self._left_bytes):
            return None
        self._left_bytes -= len(data)
        return _decoded(data)

    async def _read(self, ref: ArtifactRef) -> bytes | None:
        if not self._may_read or ref.size_bytes > min(LARGEST_TEXT_BYTES, self._left_bytes):
            return None
        try:
            found = await self._artifacts.read_range(ref, 0, LARGEST_TEXT_BYTES)
        except HostCallError:
            return None  # the model is told of the file without its text
        return found.data if found.size_bytes == len(found.data) else None


def shown(part: ContentPart, text: str) -> str:
    """Returns the text of a file as a model is shown it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{note_of(part)}\n{fence}\n{text}\n{fence}"


def _may_be_text(mime_type: str, name: str) -> bool:
    mime = mime_type.partition(";")[0].strip().lower()
    if mime in {"", _ANY_TYPE}:
        return _ends(name, _TEXT_ENDINGS)
    return mime.startswith("text/") or mime in _TEXT_TYPES or mime.endswith(("+json", "+xml"))


def _decoded(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().endswith(endings)


def attached(parts: Sequence[ContentPart], attachments: Sequence[ArtifactRef]) -> list[ContentPart]:
    """Returns the attachments that are not among the parts, as parts."""
    present = {part.artifact.artifact_id for part in parts if part.HasField("artifact")}
    return [ContentPart(artifact=ref) for ref in attachments if ref.artifact_id not in present]
