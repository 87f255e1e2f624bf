"""Makes a process speak a later version of the contract: put into the folder of its stubs.

Whatever it sends has the later version's fields set, and what an older reader may meet besides:
items of new kinds, content of new kinds, new enum numbers. The names of the messages that had any
are written into the file that LATER_NOTE names.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

LATER = 1000
seen: set[str] = set()


def fill(message: Any) -> Any:
    """Sets what is new in a message and in all that it has."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if not field.is_repeated:
            fill(value)
        elif not field.message_type.GetOptions().map_entry:
            for each in value:
                fill(each)
    name = message.DESCRIPTOR.full_name
    if name.startswith("runmesh.v1."):
        message.later_text = "of a later version"
        message.later_thing.later_number = 7
        special = SPECIAL.get(message.DESCRIPTOR.name)
        if special is not None:
            special(message)
        note(name)
    return message


def note(name: str) -> None:
    if name not in seen:
        seen.add(name)
        with Path(os.environ["LATER_NOTE"]).open("a") as file:
            file.write(f"{name}\n")


def page(message: Any) -> None:
    # At both ends of the page, whatever its order is.
    item = type(message)().items.add(kind=LATER, role=LATER, text="an item of a later version")
    message.items.insert(0, item)
    message.items.append(item)


def handshake(message: Any) -> None:
    message.protocol_versions.append("2")


def context(message: Any) -> None:
    message.event.source = LATER
    message.input.parts.add().later_content.later_number = 7


def answer(message: Any) -> None:
    message.parts.add().later_content.later_number = 7


def artifact(message: Any) -> None:
    message.permissions.append(LATER)


SPECIAL: dict[str, Callable[[Any], None]] = {
    "ArtifactRef": artifact,
    "CallToolResponse": answer,
    "HandshakeRequest": handshake,
    "PageHistoryResponse": page,
    "RunContext": context,
}


def filling(serializer: Any, method: str = "") -> Any:
    def serialize(message: Any) -> bytes:
        if method and type(message) is bytes:
            # A page, which the host puts together of parts that it keeps.
            name = f"runmesh.v1.{method}Response"
            kind = GetMessageClass(Default().FindMessageTypeByName(name))
            message = kind.FromString(message)
        if isinstance(message, Message) and message.DESCRIPTOR.full_name.startswith("runmesh.v1."):
            copy = type(message)()
            copy.CopyFrom(message)
            message = fill(copy)
        data: bytes = serializer(message)
        return data

    return serializer and serialize


def patch(owner: Any, name: str, argument: str, place: int) -> None:
    original = getattr(owner, name)

    def patched(*args: Any, **kwargs: Any) -> Any:
        if argument in kwargs:
            kwargs[argument] = filling(kwargs[argument])
        elif len(args) > place:
            args = (*args[:place], filling(args[place]), *args[place + 1 :])
        return original(*args, **kwargs)

    setattr(owner, name, patched)


def with_pages(service: str, handlers: dict[str, Any]) -> Any:
    if service == "runmesh.v1.HostAPIService":
        for name in ("PageHistory", "SearchHistory"):
            handler = handlers[name]
            serializer = filling(handler.response_serializer, name)
            handlers[name] = handler._replace(response_serializer=serializer)
    return generic_handler(service, handlers)


generic_handler = grpc.method_handlers_generic_handler
setattr(grpc, "method_handlers_generic_handler", with_pages)  # noqa: B010 - of another type
for shape in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
    patch(grpc.aio.Channel, shape, "request_serializer", 2)
    patch(type(grpc.aio.insecure_channel("localhost:1")), shape, "request_serializer", 2)
    patch(grpc, f"{shape}_rpc_method_handler", "response_serializer", 2)
