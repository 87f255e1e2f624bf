"""Every limit of the host, in one place.

A name ends in its unit. `limits:` in the configuration file sets any of them. The error that
enforces a limit reports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

KIB = 1024
MIB = 1024 * KIB

# SDKs have the same.
_FIXED = frozenset({"message_bytes"})
# What a message has around what a limit counts: ids, numbers, tags.
_AROUND_BYTES = 64 * KIB
# Bytes of a character in UTF-8.
_LONGEST_CHARACTER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is too much.

    Attributes:
        message_bytes: One gRPC message, on every leg; above every other size, so that our own
            errors answer first.
        frame_bytes: One frame of results.
        result_bytes: One result, an inline artifact not counted.
        inline_artifact_bytes: An artifact carried inside a result or an event.
        message_characters: Text and reasoning text in progress, made of deltas; at four bytes a
            character it must go into one gRPC message.
        event_bytes: An event's envelope.
        config_bytes: An agent's configuration, as JSON.
        active_runs: Runs that are under way at once.
        waiting_runs: Accepted runs that wait for their turn.
        remembered_sessions: Sessions of stateful runners whose instance is remembered; the longest
            unused is forgotten first, and goes to the least busy instance then.
        instance_wait_seconds: How long a run waits for an instance while one restarts.
        attach_credit_results: Results of each run that an attached runner may send before any of
            them was read; from then on as many as go with their size.
        interrupt_grace_seconds: How long a runner may take to stop by itself.
        shutdown_grace_seconds: How long runs under way may go on after SIGTERM.
        reader_buffer_bytes: Results that wait for one reader.
        reader_patience_seconds: How long a caller with a full buffer may go without reading.
        bookmark_seconds: An idle stream carries a bookmark that often.
        checkpoint_seconds: Text in progress is kept at least that often.
        checkpoint_bytes: Text in progress is kept at least every so many bytes.
        reserved_numbers: How many delivered numbers are reserved at a time.
        warnings_kept: Warnings of one run that are kept.
        host_lease_seconds: How long the runs of a host are its own without a sign of life.
        page_items: Items of a page.
        page_default_items: Items of a page when the request does not say.
        page_bytes: A page, whatever the item count.
        page_item_text_bytes: The text of one transcript item in a page.
        search_items: Items of a page that a search found.
        search_default_items: Items of such a page when the request does not say.
        range_bytes: One range of an artifact.
        chunk_bytes: One chunk of an artifact's stream.
        artifact_bytes: One artifact.
        artifact_collection_seconds: How often a host looks for artifacts that have expired, for
            bytes that none refers to, and for what is left of documents.
        artifact_grace_seconds: How long nobody may have touched such bytes before they go; longer
            than any upload needs to store them.
        state_value_bytes: A value of state, as JSON.
        state_snapshot_bytes: The state that a run starts with.
        storage_value_bytes: A value of storage.
        executing_actions: Actions that are executed at once; more wait for their turn.
        action_bytes: The target, or the payload, of an action, as JSON.
        action_answer_bytes: What is kept of an executor's answer.
        document_bytes: A document of a knowledge base.
        document_metadata_bytes: What is said of one for searches to filter by, as JSON.
        document_characters: The text of one.
        document_seconds: How much time of a processor it may take to read one.
        document_memory_bytes: How much memory the process may have that reads documents.
        document_readers: Documents that are read at once.
        documents_at_once: Documents that are taken in at once; more wait for their turn.
        idle_reader_seconds: How long a process that reads documents is kept for the next one.
        embedded_passages: Passages whose vectors are asked for, and stored, at a time.
        embedding_retry_seconds: How long passages wait whose vectors could not be had.
        query_vector_seconds: How long the vector of a query may take; then its words alone are
            looked for.
        tools_of_server: Tools of one tool server; what it offers beyond is left out.
        tool_description_bytes: What a tool says of itself; cut beyond.
        tool_schema_bytes: The schema of a tool's parameters; a tool with a larger one is left out.
        tool_schema_told_bytes: A schema that a run is told at its start; a larger one it asks for.
        tool_schemas_told_bytes: All schemas that a run is told at its start.
        tool_message_bytes: One message of a tool server.
        tools_remembered_bytes: What is remembered of one tool server's tools over a restart of the
            host; more is not.
        tool_result_bytes: A tool's result, or a part of it, that is carried inline; a larger one
            becomes an artifact.
        tool_preview_bytes: The beginning of a larger result that is carried along.
        tool_calls_of_server: Calls of one tool server at once; more wait for their turn.
        tool_call_seconds: How long a tool may take, its wait included.
        tool_server_start_seconds: How long a tool server may take until its tools are known.
        tool_server_wait_seconds: How long a call waits for a tool server that is starting.
        model_connect_seconds: How long a connection to a model's provider may take to be made.
        model_silence_seconds: How long a provider may go without sending anything.
        model_attempts: How often a call to a model is sent at most, while nothing of its answer
            has come.
        model_retry_wait_seconds: A call is tried again only where that is to be waited for no
            longer.
        model_waiting_calls: Calls that wait for their turn with one model.
        model_request_bytes: What is sent to a model, pictures and all.
        model_image_bytes: A picture that is sent to a model.
        model_answer_bytes: The texts of one answer of a model.
        model_response_bytes: What a model sends at once: a record of a stream, or a whole body.
        model_error_bytes: What is read of a provider's error.
        embedding_batch_texts: Texts that are sent to an embedding model at once.
        host_calls_per_second: HostAPI calls of one run, in the long run.
        host_calls_burst: HostAPI calls of one run at once, after a rest.
    """

    message_bytes: int = 16 * MIB
    frame_bytes: int = 3 * MIB
    result_bytes: int = MIB
    inline_artifact_bytes: int = MIB
    message_characters: int = 3 * MIB
    event_bytes: int = 2 * MIB
    config_bytes: int = 256 * KIB
    active_runs: int = 256
    waiting_runs: int = 1024
    remembered_sessions: int = 10_000
    instance_wait_seconds: float = 10.0
    attach_credit_results: int = 64
    interrupt_grace_seconds: float = 5.0
    shutdown_grace_seconds: float = 30.0
    reader_buffer_bytes: int = 4 * MIB
    reader_patience_seconds: float = 10.0
    bookmark_seconds: float = 15.0
    checkpoint_seconds: float = 0.5
    checkpoint_bytes: int = 64 * KIB
    reserved_numbers: int = 65536
    warnings_kept: int = 100
    host_lease_seconds: float = 15.0
    page_items: int = 100
    page_default_items: int = 50
    page_bytes: int = 2 * MIB
    page_item_text_bytes: int = 256 * KIB
    search_items: int = 50
    search_default_items: int = 10
    range_bytes: int = MIB
    chunk_bytes: int = MIB
    artifact_bytes: int = 1024 * MIB
    artifact_collection_seconds: float = 3600.0
    artifact_grace_seconds: float = 3600.0
    state_value_bytes: int = 256 * KIB
    state_snapshot_bytes: int = 2 * MIB
    storage_value_bytes: int = 3 * MIB
    executing_actions: int = 64
    action_bytes: int = MIB
    action_answer_bytes: int = 64 * KIB
    document_bytes: int = 32 * MIB
    document_metadata_bytes: int = 64 * KIB
    document_characters: int = 4 * MIB
    document_seconds: float = 60.0
    document_memory_bytes: int = 1024 * MIB
    document_readers: int = 2
    documents_at_once: int = 4
    idle_reader_seconds: float = 30.0
    embedded_passages: int = 64
    embedding_retry_seconds: float = 60.0
    query_vector_seconds: float = 10.0
    tools_of_server: int = 256
    tool_description_bytes: int = 8 * KIB
    tool_schema_bytes: int = 256 * KIB
    tool_schema_told_bytes: int = 8 * KIB
    tool_schemas_told_bytes: int = 256 * KIB
    tool_message_bytes: int = 64 * MIB
    tools_remembered_bytes: int = 4 * MIB
    tool_result_bytes: int = 32 * KIB
    tool_preview_bytes: int = 4 * KIB
    tool_calls_of_server: int = 16
    tool_call_seconds: float = 120.0
    tool_server_start_seconds: float = 30.0
    tool_server_wait_seconds: float = 10.0
    model_connect_seconds: float = 10.0
    model_silence_seconds: float = 300.0
    model_attempts: int = 3
    model_retry_wait_seconds: float = 30.0
    model_waiting_calls: int = 1024
    model_request_bytes: int = 64 * MIB
    model_image_bytes: int = 20 * MIB
    model_answer_bytes: int = 8 * MIB
    model_response_bytes: int = 64 * MIB
    model_error_bytes: int = 64 * KIB
    embedding_batch_texts: int = 64
    host_calls_per_second: float = 100.0
    host_calls_burst: int = 200

    def as_mapping(self) -> Mapping[str, int | float]:
        """Return every limit by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def with_overrides(self, overrides: Mapping[str, int | float]) -> Limits:
        """Return these limits with some set otherwise.

        Raises:
            ValueError: A name is unknown or fixed, a value is not a positive number, or a size
                does not go into one message; the text names it.
        """
        known = {field.name: field.type for field in fields(self)}
        for name, value in overrides.items():
            if name not in known:
                raise ValueError(
                    f"limits.{name}: there is no such limit; known: {', '.join(sorted(known))}"
                )
            if name in _FIXED:
                raise ValueError(f"limits.{name}: is the same on every leg, and cannot be set")
            if not _is_number(value) or not 0 < value < math.inf:
                raise ValueError(f"limits.{name}: must be a number above 0; got {value!r}")
            if known[name] == "int" and not isinstance(value, int):
                raise ValueError(f"limits.{name}: must be a whole number; got {value!r}")
        changed: Limits = replace(self, **dict(overrides))  # type: ignore[arg-type]  # checked just above
        changed._require_fit()
        return changed

    def _require_fit(self) -> None:
        """Raise `ValueError` for a size that no message can have: our own errors answer first."""
        most = self.message_bytes - _AROUND_BYTES
        sizes = {
            "frame_bytes": self.frame_bytes,
            "inline_artifact_bytes": self.inline_artifact_bytes,
            "result_bytes": self.result_bytes + self.inline_artifact_bytes,
            "event_bytes": self.event_bytes,
            "config_bytes": self.config_bytes,
            "page_bytes": self.page_bytes,
            # Beside its text, an item has what else is in a message.
            "page_item_text_bytes": self.page_item_text_bytes + self.result_bytes,
            "range_bytes": self.range_bytes,
            "chunk_bytes": self.chunk_bytes,
            "state_value_bytes": self.state_value_bytes,
            "state_snapshot_bytes": self.state_snapshot_bytes,
            "storage_value_bytes": self.storage_value_bytes,
            "document_metadata_bytes": self.document_metadata_bytes,
            # An action has two of them, and is shown with its answer.
            "action_bytes": self.action_bytes * 2 + self.action_answer_bytes,
            "model_answer_bytes": self.model_answer_bytes,
            "message_characters": self.message_characters * _LONGEST_CHARACTER,
        }
        for name, size in sizes.items():
            if size > most:
                raise ValueError(
                    f"limits.{name}: takes {size} bytes of one message, which has room for {most} "
                    f"(message_bytes is {self.message_bytes})"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageLimits:
    """How large a plugin's package may be; of a larger one nothing is unpacked.

    They guard the machine of whoever installs, host or no host, so no configuration sets them.

    Attributes:
        package_bytes: The package's file.
        unpacked_bytes: All its files together.
        entries: Files and links.
        expansion: Bytes that one packed byte may become, in a file above `expansion_from_bytes`.
        expansion_from_bytes: Smaller files may become of as few bytes as they like.
        path_bytes: A path within it.
        name_bytes: One name in such a path.
        path_depth: Names in such a path.
        link_bytes: What a link leads to.
        contents_bytes: Its list of contents.
        redirects: How often a download may be sent elsewhere.
        download_seconds: How long a download may go without a byte.
    """

    package_bytes: int = 256 * MIB
    unpacked_bytes: int = 1024 * MIB
    entries: int = 20_000
    expansion: int = 200
    expansion_from_bytes: int = MIB
    path_bytes: int = 512
    name_bytes: int = 200
    path_depth: int = 24
    link_bytes: int = 512
    contents_bytes: int = 16 * MIB
    redirects: int = 5
    download_seconds: float = 30.0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
