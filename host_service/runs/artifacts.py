"""The artifacts in what one run says.

Bytes carried in results are stored before the result is shown, so that whoever is shown a reference
can read what it refers to. The same bytes under the same name are one artifact, however often the
run sends them: as a piece of a message, in the whole message, at its end. A reference must be to an
artifact that the run may see: one that is not is dropped with a warning.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from hashlib import sha256

from runmesh.v1 import result_pb2, types_pb2

from host_service.authorization.snapshot import Snapshot
from host_service.identity import join_key
from host_service.runs.artifact_refs import DEFAULT_TYPE, artifact_ref, has_artifacts, type_of
from host_service.runs.outcome import RunFault
from stores.artifacts import Artifacts
from stores.errors import AlreadyExists, InvalidRecord, StoreError
from stores.records import ArtifactHeader, ArtifactRecord

#: Told of what somebody should know: a code and a sentence.
Warn = Callable[[str, str], None]

_UNFIT_IN_NAME = re.compile(r"[/\\\x00-\x1f\x7f]")
_OTHERWISE = {"name": "", "mime_type": "application/octet-stream", "type": DEFAULT_TYPE}
# Digits of an id that follows from what it is of: as many as nobody ever sees collide.
_ID_DIGITS = 40


def needs_settling(result: result_pb2.RunResult, kind: str) -> bool:
    """Return whether a durable result refers to artifacts, or carries bytes that become some."""
    if kind == "message_completed":
        return has_artifacts(result.message_completed.message)
    return kind == "artifact_created"


class RunArtifacts:
    """Stores and checks the artifacts in the results of one run.

    Args:
        snapshot: What the run may do.
        store: Where artifacts are kept.
        clock: Tells when one was made.
        warn: Told of what is dropped or changed.
    """

    def __init__(
        self, *, snapshot: Snapshot, store: Artifacts, clock: Callable[[], datetime], warn: Warn
    ) -> None:
        self._snapshot = snapshot
        self._store = store
        self._clock = clock
        self._warn = warn

    async def settle(self, result: result_pb2.RunResult) -> bool:
        """Put references to what is stored into a durable result; False if it is to be dropped.

        Raises:
            RunFault: An artifact could not be stored, or looked for.
        """
        if result.HasField("message_completed"):
            await self.settle_message(result.message_completed.message)
            return True
        created = result.artifact_created
        if created.HasField("inline"):
            record = await self._keep(created.inline, type=created.type, summary=created.summary)
            result.artifact_created.CopyFrom(result_pb2.ArtifactCreated(ref=artifact_ref(record)))
            return True
        return await self._is_own(created.ref)

    async def settle_message(self, message: types_pb2.ChatMessage) -> None:
        """Put references to what is stored into a message; what is not the run's is taken out.

        Raises:
            RunFault: An artifact could not be stored, or looked for.
        """
        for index in reversed(range(len(message.parts))):
            if not await self._is_fit(message.parts[index]):
                del message.parts[index]
        for index in reversed(range(len(message.artifacts))):
            if not await self._is_own(message.artifacts[index]):
                del message.artifacts[index]

    async def settle_parts(self, parts: Iterable[types_pb2.ContentPart]) -> None:
        """Put references to what is stored into parts that keep their places.

        What is not the run's becomes an empty text.

        Raises:
            RunFault: An artifact could not be stored, or looked for.
        """
        for part in parts:
            if not await self._is_fit(part):
                part.text = ""

    async def _is_fit(self, part: types_pb2.ContentPart) -> bool:
        if part.HasField("inline"):
            part.artifact.CopyFrom(artifact_ref(await self._keep(part.inline)))
        elif part.HasField("artifact"):
            return await self._is_own(part.artifact)
        return True

    async def _is_own(self, ref: types_pb2.ArtifactRef) -> bool:
        """Return whether a reference is the run's to show; what it says is then what is stored."""
        try:
            record = await self._store.get(ref.artifact_id)
        except StoreError as error:
            raise _not_stored("an artifact could not be looked for") from error
        if record is None or not self._snapshot.sees(record):
            self._warn(
                "artifact_unknown",
                f"{ref.artifact_id[:64]!r} is no artifact that this run may see: "
                "what refers to it was dropped",
            )
            return False
        ref.CopyFrom(artifact_ref(record))
        return True

    async def _keep(
        self, inline: types_pb2.InlineContent, *, type: str = "", summary: str = ""
    ) -> ArtifactRecord:
        identity = self._snapshot.identity
        header = ArtifactHeader(
            artifact_id=self._id_of(inline),
            workspace=identity.workspace,
            bot=identity.bot,
            conversation_key=identity.conversation_key,
            run_id=self._snapshot.run_id,
            type=type or type_of(inline.mime_type),
            created_at=self._clock(),
            mime_type=inline.mime_type,
            name=inline.name,
            summary=summary,
        )
        try:
            return await self._write(header, inline.data)
        except AlreadyExists:
            found = await self._store.get(header.artifact_id)
            if found is None:
                raise _not_stored("an artifact is gone that the run sent before") from None
            return found
        except StoreError as error:
            raise _not_stored("an artifact could not be stored") from error

    async def _write(self, header: ArtifactHeader, data: bytes) -> ArtifactRecord:
        """Store an artifact; what the stores cannot take of its header is mended and told."""
        while True:
            try:
                return await self._store.write(header, _whole(data))
            except InvalidRecord as error:
                fit = _mended(header, error.field)
                if fit == header:
                    raise
                self._warn(
                    "artifact_mended",
                    f"an artifact's {error.field} {error.rule}: "
                    f"it became {getattr(fit, error.field)!r}",
                )
                header = fit

    def _id_of(self, inline: types_pb2.InlineContent) -> str:
        digest = sha256(inline.data).hexdigest()
        key = join_key(self._snapshot.run_id, inline.mime_type, inline.name, digest)
        return f"run-{sha256(key.encode()).hexdigest()[:_ID_DIGITS]}"


def _mended(header: ArtifactHeader, field: str) -> ArtifactHeader:
    """Return a header with a field that may pass; the same one where there is none."""
    name = _UNFIT_IN_NAME.sub("_", header.name)
    if field == "name" and name not in {header.name, "", ".", ".."}:
        return replace(header, name=name)
    if field not in _OTHERWISE:
        return header
    return replace(header, **{field: _OTHERWISE[field]})  # type: ignore[arg-type]  # all are texts


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _not_stored(text: str) -> RunFault:
    return RunFault("host.unavailable", text, retryable=True)
