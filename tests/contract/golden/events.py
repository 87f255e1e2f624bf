"""Golden events."""

from runmesh.v1 import event_pb2

from tests.contract.golden.values import EARLY, JSON, METADATA, SHA256, TEXT, TIME, artifact, parts


def actor() -> event_pb2.Actor:
    """Somebody."""
    return event_pb2.Actor(type="user", id="u-9007199254740993", name=TEXT, metadata=METADATA)


def subject() -> event_pb2.Subject:
    """Something."""
    return event_pb2.Subject(type="message", id="m-1", data_json=JSON)


def event_input() -> event_pb2.EventInput:
    """Something said, in every form."""
    return event_pb2.EventInput(
        text=TEXT, parts=parts(), attachments=[artifact("art-3")], message_chain_json="[]"
    )


def delivery() -> event_pb2.DeliveryContext:
    """A surface that can do everything."""
    return event_pb2.DeliveryContext(
        surface="telegram",
        reply_target_json=JSON,
        supports_streaming=True,
        supports_edit=True,
        supports_reaction=True,
        max_message_characters=4096,
        platform_capabilities_json="{}",
    )


def raw_ref() -> event_pb2.RawEventRef:
    """The source's own form, kept as an artifact."""
    return event_pb2.RawEventRef(artifact_id="art-4", size_bytes=1 << 40, sha256=SHA256)


def message_event() -> event_pb2.EventEnvelope:
    """A message, with everything that an event can carry."""
    return event_pb2.EventEnvelope(
        event_id="evt-1",
        type="message.received",
        time=TIME,
        source=event_pb2.EVENT_SOURCE_PLATFORM,
        source_event_name="GroupMessage",
        workspace_id="workspace",
        bot_id="bot",
        conversation_id="明天",
        thread_id="thread",
        actor=actor(),
        subject=subject(),
        input=event_input(),
        delivery=delivery(),
        raw_ref=raw_ref(),
        data_json=JSON,
        adapter_extra_json="{}",
        metadata=METADATA,
    )


def joined_event() -> event_pb2.EventEnvelope:
    """Something that happened and was not said."""
    return event_pb2.EventEnvelope(
        event_id="evt-2",
        type="group.member_joined",
        time=EARLY,
        source=event_pb2.EVENT_SOURCE_HOST_ADAPTER,
        conversation_id="room",
        subject=event_pb2.Subject(type="membership", id="u-2"),
        raw_ref=event_pb2.RawEventRef(storage_key="raw/2", size_bytes=0, sha256=SHA256),
        data_json="null",
    )


def bare_event() -> event_pb2.EventEnvelope:
    """Fields that are set to their defaults: a reader sees that they are set."""
    return event_pb2.EventEnvelope(
        type="api.invoked",
        actor=event_pb2.Actor(),
        input=event_pb2.EventInput(text="", message_chain_json=""),
        delivery=event_pb2.DeliveryContext(max_message_characters=0, reply_target_json=""),
        data_json="",
        metadata={"": ""},
    )
