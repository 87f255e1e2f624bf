"""Webhooks: who does which action, at which address.

The section has a list of them::

webhooks:
  - action: ticket.create
    url: https://desk.example/hooks/runmesh
    secret: {env: DESK_SECRET}      # what requests are signed with; never in the file itself
    timeout: 10s
    insecure: false                 # true: http to another machine, readable on the way
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

import yaml

from host_service.configuration.document import DocumentReader, join
from host_service.configuration.secrets import read_secret
from host_service.durations import DURATION_FORM, parse_duration

_REQUIRED = ("action", "url", "secret")
_ACTION_BYTES = 100
_DEFAULT_SECONDS = 10.0
_LONGEST_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredWebhook:
    """A webhook that a configuration declares.

    Attributes:
        action: The action that it does.
        url: Where it is.
        secret: What requests to it are signed with.
        timeout_seconds: How long all of a request may take.
    """

    action: str
    url: str
    secret: str
    timeout_seconds: float = _DEFAULT_SECONDS


def read_webhooks(reader: DocumentReader, node: yaml.Node | None) -> tuple[DeclaredWebhook, ...]:
    """Reads the section; what is wrong is kept by the reader."""
    if node is None:
        return ()
    found: dict[str, str] = {}
    webhooks = []
    for path, item in reader.items(node, "webhooks"):
        webhook = _read(reader, item, path)
        if webhook is None:
            continue
        if webhook.action in found:
            reader.fault(
                item, f"{path}.action", f"{webhook.action!r} is also {found[webhook.action]}"
            )
        found.setdefault(webhook.action, path)
        webhooks.append(webhook)
    return tuple(webhooks)


def _read(reader: DocumentReader, node: yaml.Node, path: str) -> DeclaredWebhook | None:
    before = len(reader.faults)
    read: dict[str, Any] = {}
    nodes: dict[str, yaml.Node] = {}
    for name, key, value in reader.entries(node, path):
        if name in _READERS:
            read[name] = _READERS[name](reader, value, join(path, name))
            nodes[name] = value
        else:
            reader.unknown(key, path, name, tuple(_READERS))
    for name in _REQUIRED:
        if name not in read:
            reader.fault(node, join(path, name), "must be there")
    if len(reader.faults) > before:
        return None
    is_insecure = read.pop("insecure", False)
    if (fault := _fault_of_url(read["url"], is_insecure=is_insecure)) is not None:
        reader.fault(nodes["url"], join(path, "url"), fault)
    seconds = read.pop("timeout", _DEFAULT_SECONDS)
    return DeclaredWebhook(**read, timeout_seconds=seconds)


def _read_action(reader: DocumentReader, node: yaml.Node, path: str) -> str | None:
    action = reader.text(node, path)
    if action is not None and not 1 <= len(action.encode()) <= _ACTION_BYTES:
        reader.fault(node, path, f"must be 1 to {_ACTION_BYTES} bytes")
    return action


def _read_seconds(reader: DocumentReader, node: yaml.Node, path: str) -> float:
    text = reader.text(node, path)
    if text is None:
        return _DEFAULT_SECONDS
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError:
        reader.fault(node, path, f"must be {DURATION_FORM}")
        return _DEFAULT_SECONDS
    if not 0 < seconds <= _LONGEST_SECONDS:
        reader.fault(node, path, f"must be more than 0 and at most {_LONGEST_SECONDS:g} s")
    return seconds


_READERS: Mapping[str, Callable[[DocumentReader, yaml.Node, str], Any]] = {
    "action": _read_action,
    "url": DocumentReader.text,
    "secret": read_secret,
    "timeout": _read_seconds,
    "insecure": DocumentReader.truth,
}


def _fault_of_url(url: str, *, is_insecure: bool) -> str | None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in {"http", "https"} or not host:
        return "must be an http or https URL with a host"
    if not url.isascii() or any(character <= " " for character in url):
        return "must be ASCII without spaces: write other characters as %XX, a host as xn--"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must have no user, password or fragment"
    if parts.scheme == "http" and not is_insecure and not _is_loopback(parts):
        return "must be https, unless it is on this machine or insecure is true"
    return None


def _is_loopback(parts: SplitResult) -> bool:
    if parts.hostname == "localhost":
        return True
    try:
        return ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
