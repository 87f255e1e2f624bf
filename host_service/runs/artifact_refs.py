"""References to artifacts, as events, results and runs carry them.

What a reference says of an artifact (its type, name, size, digest) is the host's to say: whatever a
caller or a runner wrote into it is replaced by what is stored. What its receiver may do with it
depends on who that is: whoever reads results and transcripts may read the bytes, a run only what it
was granted.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message
from runmesh.v1 import event_pb2, types_pb2

from host_service.authorization.snapshot import Snapshot
from host_service.validation.tree import walk
from stores.records import ArtifactRecord

DEFAULT_TYPE = "file"
_TYPES = {"image": "image", "audio": "voice", "video": "video"}
_REF = types_pb2.ArtifactRef.DESCRIPTOR.full_name
_METADATA = types_pb2.ARTIFACT_PERMISSION_METADATA
_READ = types_pb2.ARTIFACT_PERMISSION_READ


def artifact_ref(record: ArtifactRecord) -> types_pb2.ArtifactRef:
    """Return a reference to a stored artifact for somebody who may read it."""
    ref = types_pb2.ArtifactRef(
        artifact_id=record.artifact_id,
        type=record.type,
        mime_type=record.mime_type,
        name=record.name,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
        summary=record.summary,
        permissions=[_METADATA, _READ],
    )
    if record.expires_at is not None:
        ref.expires_at.FromDatetime(record.expires_at)
    return ref


def type_of(mime_type: str) -> str:
    """Return the type of an artifact of which only the media type is known."""
    return _TYPES.get(mime_type.partition("/")[0].lower(), DEFAULT_TYPE)


def hand_to_run(message: Message, snapshot: Snapshot, *, sees: bool = True) -> None:
    """Let every reference in a message say what a run may do with it.

    Args:
        message: The message.
        snapshot: What the run was granted.
        sees: Whether the artifacts are the run's to see; of others it is shown the reference.
    """
    granted = [
        permission
        for permission, word in ((_METADATA, "metadata"), (_READ, "read"))
        if sees and snapshot.grants("artifacts", word)
    ]
    for _, part in walk(message):
        if part.DESCRIPTOR.full_name == _REF:
            part.permissions[:] = granted


def brings_artifacts(envelope: event_pb2.EventEnvelope) -> bool:
    """Return whether an event refers to artifacts, or carries bytes that become some."""
    content = envelope.input
    return bool(
        content.attachments
        or (content.parts and any(_is_kept(part) for part in content.parts))
        or envelope.raw_ref.artifact_id
    )


def _is_kept(part: types_pb2.ContentPart) -> bool:
    return part.HasField("artifact") or part.HasField("inline")


def refs_of_input(
    content: event_pb2.EventInput, path: str
) -> Iterator[tuple[str, types_pb2.ArtifactRef]]:
    """Yield the references in what was said, each with its path."""
    for index, part in enumerate(content.parts):
        if part.HasField("artifact"):
            yield f"{path}.parts[{index}].artifact", part.artifact
    for index, ref in enumerate(content.attachments):
        yield f"{path}.attachments[{index}]", ref


def artifact_ids(envelope: event_pb2.EventEnvelope) -> frozenset[str]:
    """Return the ids of the artifacts that an event refers to."""
    if not brings_artifacts(envelope):
        return frozenset()
    ids = {ref.artifact_id for _, ref in refs_of_input(envelope.input, "")}
    ids.add(envelope.raw_ref.artifact_id)
    return frozenset(ids - {""})


def has_artifacts(message: types_pb2.ChatMessage) -> bool:
    """Return whether a chat message refers to artifacts, or carries bytes that become some."""
    return bool(message.artifacts) or any(_is_kept(part) for part in message.parts)
