"""Getting to know the process: who it is, which version it speaks, and that it keeps nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from runmesh.v1 import discovery_pb2

from host_service.conformance.check import Check, Reach
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.requests import add_unknown_fields
from host_service.conformance.session import Session
from host_service.validation import find_violations

_SETTINGS = '{"conformance":"\\u2713 \U0001f600","number":9007199254740993,"list":[1,{"a":null}]}'
_AT_ONCE = 8
_OLD_VERSIONS = ("0.9", "conformance-none")


async def _answers(session: Session) -> str:
    answer = await session.handshake()
    violations = find_violations(answer)
    if violations:
        raise Failed(
            expected="every field of HandshakeResponse as its comment says",
            got="; ".join(str(each) for each in violations),
            advice="fill in HandshakeResponse: plugin_id is `author/name`, instance_id random",
        )
    if answer.max_concurrent_runs < 0:
        raise Failed(
            expected="max_concurrent_runs of 0 or more",
            got=str(answer.max_concurrent_runs),
            advice="say 0 where the process has no limit of its own",
        )
    return " ".join(
        part
        for part in (
            f"{answer.plugin_id} {answer.plugin_version}",
            answer.sdk_name,
            answer.sdk_language,
            answer.sdk_version,
        )
        if part
    )


async def _plugin_id(session: Session) -> str:
    expected = session.options.expected_plugin
    if session.process is not None and not expected:
        expected = session.process.manifest.plugin_id
    if not expected:
        raise Skipped("the kit was not told which plugin this is: --expect AUTHOR/NAME")
    answer = await session.handshake()
    if answer.plugin_id != expected:
        raise Failed(
            expected=repr(expected),
            got=repr(answer.plugin_id),
            advice="answer with the plugin id of manifest.yaml, author/name; a host refuses any "
            "other",
        )
    return expected


async def _picks_version(session: Session) -> str:
    for offered in (("1",), ("2", "1"), ("1", "0.9")):
        answer = await session.handshake(versions=offered)
        if answer.protocol_version != "1":
            raise Failed(
                expected=f"protocol_version '1' of the offered {', '.join(offered)}",
                got=repr(answer.protocol_version),
                advice="pick the version that you speak from the host's list, wherever it stands",
            )
    return ""


async def _no_common_version(session: Session) -> str:
    for offered in (_OLD_VERSIONS, ()):
        answer = await session.handshake(versions=offered)
        if answer.protocol_version:
            raise Failed(
                expected=f"an empty protocol_version when offered {list(offered)}",
                got=repr(answer.protocol_version),
                advice="leave protocol_version empty if the host's list does not have yours: the "
                "host then lists the process as incompatible, and says why",
            )
    answer = await session.handshake()
    if answer.protocol_version != "1":
        raise Failed(
            expected="protocol_version '1' for the next host",
            got=repr(answer.protocol_version),
            advice="keep nothing of a handshake: each is answered by itself",
        )
    return ""


async def _repeated(session: Session) -> str:
    first = await session.handshake()
    others = await asyncio.gather(
        *(session.handshake(host_id=f"host-{number}") for number in range(_AT_ONCE))
    )
    for other in others:
        if other.instance_id != first.instance_id:
            raise Failed(
                expected=f"instance_id {first.instance_id!r} in every handshake of one process",
                got=repr(other.instance_id),
                advice="make instance_id once, when the process starts: by it a host sees that a "
                "process was replaced",
            )
        if other != first:
            raise Failed(
                expected="the same answer to every host",
                got=_difference(first, other),
                advice="answer from what the process is, not from who asks",
            )
    return f"{_AT_ONCE} hosts"


async def _settings(session: Session) -> str:
    process = session.process
    before = await session.handshake(), await session.list_runners()
    files = await process.files_stamp() if process is not None else None
    for settings in (_SETTINGS, "{}", '{"conformance_large":"' + "x" * 200_000 + '"}'):
        await session.handshake(host_id="host-with-settings", settings_json=settings)
    after = await session.handshake(), await session.list_runners()
    if after != before:
        raise Failed(
            expected="the same handshake and manifests after another host sent its settings",
            got=_difference(before[0], after[0]) or _difference(before[1], after[1]),
            advice="use settings for the runs of the host that sent them, by its host_id; what the "
            "process is and serves does not follow from them",
        )
    if process is not None and files != await process.files_stamp():
        raise Failed(
            expected="no file of the plugin, its home or its temporary folder to change",
            got="files that were written by a handshake",
            advice="do not write settings to files: the host sends them with every handshake",
        )
    return "" if process is not None else "files were not looked at: that takes --plugin"


async def _unknown_fields(session: Session) -> str:
    before = await session.handshake()
    answer = await session.handshake(change=add_unknown_fields)
    if answer != before:
        raise Failed(
            expected="the same answer with fields from a later version in the request",
            got=_difference(before, answer),
            advice="ignore fields that you do not know, as protobuf does by itself",
        )
    await session.handshake(change=_leave_bare)
    return ""


def _leave_bare(request: discovery_pb2.HandshakeRequest) -> None:
    request.host_name = ""
    request.ClearField("settings_json")


def _difference(before: object, after: object) -> str:
    """The first line in which two messages differ."""
    if before == after:
        return ""
    lines = zip(
        [*str(before).splitlines(), "(end)"], [*str(after).splitlines(), "(end)"], strict=False
    )
    was, is_ = next(((one, other) for one, other in lines if one != other), ("", ""))
    return f"{is_.strip()[:200]!r} where {was.strip()[:200]!r} was"


_DISCOVERY = "discovery.proto, DiscoveryService.Handshake"

CHECKS: Final = (
    Check(
        "handshake.answers",
        "Handshake is answered, each field as its comment says.",
        "discovery.proto, HandshakeResponse",
        _answers,
    ),
    Check(
        "handshake.plugin-id",
        "A plugin does not choose its own identity.",
        "discovery.proto, HandshakeResponse.plugin_id",
        _plugin_id,
    ),
    Check(
        "handshake.version",
        "The runner picks a version that both speak.",
        "discovery.proto, HandshakeResponse.protocol_version",
        _picks_version,
        reach=Reach.DIALLED,
    ),
    Check(
        "handshake.no-common-version",
        "Without a common version the answer's is empty, and nothing else is disturbed.",
        _DISCOVERY,
        _no_common_version,
        reach=Reach.DIALLED,
    ),
    Check(
        "handshake.repeated",
        "A handshake may be repeated by any host at any time, and is answered alike.",
        _DISCOVERY,
        _repeated,
        reach=Reach.DIALLED,
    ),
    Check(
        "handshake.settings",
        "A handshake has no lasting effect, whatever settings it carries.",
        _DISCOVERY,
        _settings,
        reach=Reach.DIALLED,
    ),
    Check(
        "handshake.tolerates",
        "Unknown fields are ignored, and optional ones may be absent.",
        "types.proto, the rules that hold everywhere",
        _unknown_fields,
        reach=Reach.DIALLED,
    ),
)
