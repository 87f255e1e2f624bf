"""Golden messages as files: names, bytes and text."""

from collections.abc import Mapping
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import Message

FOLDER = Path(__file__).parent


def encode(message: Message) -> bytes:
    """Returns the bytes of a message, maps in the order of their keys."""
    return message.SerializeToString(deterministic=True)


def as_text(message: Message) -> str:
    """Returns a message in protobuf's text format, readable in any language."""
    name = message.DESCRIPTOR.full_name
    return f"# proto-message: {name}\n\n{text_format.MessageToString(message, as_utf8=True)}"


def file_name(message: Message, case: str) -> str:
    """Returns the name of a message's files, without what tells the two apart."""
    return f"{message.DESCRIPTOR.full_name}.{case}"


def expected_files(messages: Mapping[str, Message]) -> dict[str, bytes]:
    """Returns the content of every file, by name."""
    files = {}
    for name, message in messages.items():
        files[f"{name}.binpb"] = encode(message)
        files[f"{name}.txtpb"] = as_text(message).encode()
    return files


def write_files(messages: Mapping[str, Message], folder: Path) -> None:
    """Makes the files of a folder those of some messages; files of others go."""
    expected = expected_files(messages)
    for path in (*folder.glob("*.binpb"), *folder.glob("*.txtpb")):
        if path.name not in expected:
            path.unlink()
    for name, content in expected.items():
        (folder / name).write_bytes(content)
