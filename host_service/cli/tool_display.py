"""How tool servers, their tools and what those answer are shown."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from runmesh.admin.v1 import admin_pb2, tools_pb2
from runmesh.v1 import host_api_pb2, types_pb2

from host_service.cli.connection import CALL_SECONDS, HostConnection
from host_service.cli.display import notes, print_table, words
from host_service.cli.failures import one_line, visible
from host_service.cli.json_output import print_json, to_json
from host_service.cli.paging import collect

_LONGEST_DESCRIPTION = 100


@dataclass(frozen=True)
class Listed:
    """A tool server, and how it is with it."""

    server: admin_pb2.ToolServer
    status: tools_pb2.ToolServerStatus


async def fetch_servers(host: HostConnection) -> list[Listed]:
    """All tool servers by id, with how they are."""

    async def servers(size: int, token: str) -> tuple[Sequence[admin_pb2.ToolServer], str]:
        answer = await host.admin.ListToolServers(
            admin_pb2.ListToolServersRequest(page_size=size, page_token=token),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.tool_servers, answer.next_page_token

    async def statuses(size: int, token: str) -> tuple[Sequence[tools_pb2.ToolServerStatus], str]:
        answer = await host.admin.ListToolServerStatuses(
            tools_pb2.ListToolServerStatusesRequest(page_size=size, page_token=token),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.statuses, answer.next_page_token

    by_id = {each.tool_server_id: each for each in await collect(statuses)}
    return [
        Listed(each, by_id.get(each.id, tools_pb2.ToolServerStatus(tool_server_id=each.id)))
        for each in await collect(servers)
    ]


def servers_json(found: Sequence[Listed]) -> None:
    """Prints tool servers as an array, how each is in `status`."""
    print_json([{**to_json(each.server), "status": to_json(each.status)} for each in found])


def print_servers(found: Sequence[Listed]) -> None:
    """Prints tool servers, their tools, and what is wrong with those that have trouble."""
    rows = []
    for each in found:
        server, status = each.server, each.status
        command = " ".join([server.command.command, *server.command.args])
        state = words(tools_pb2.ToolServerState, status.state)
        count = str(len(status.tools))
        rows.append([server.id, state, count, server.http.url or command])
    print_table(["SERVER", "STATE", "TOOLS", "WHERE"], rows, empty="no tool servers")
    for each in found:
        if each.status.tools or each.status.trouble or each.status.left_out:
            print()
            print_status(each.status)


def print_status(status: tools_pb2.ToolServerStatus) -> None:
    """Prints how it is with one tool server, and what it offers."""
    name, state = status.tool_server_id, words(tools_pb2.ToolServerState, status.state)
    known = f" ({status.server_name}, protocol {status.protocol_version})"
    print(visible(f"{name}: {state}{known if status.server_name else ''}"))
    if status.trouble:
        print(visible(f"  {one_line(status.trouble)}"))
    for line in status.last_words.splitlines():
        print(visible(f"  | {line}"))
    rows = [[each.name, _described(each)] for each in status.tools]
    if rows:
        print_table(["TOOL", "WHAT IT DOES"], rows)
    for left_out in status.left_out:
        print(visible(f"  left out: {left_out.name}: {left_out.reason}"))


def _described(tool: tools_pb2.OfferedTool) -> str:
    text = one_line(tool.description)
    if len(text) > _LONGEST_DESCRIPTION:
        text = f"{text[: _LONGEST_DESCRIPTION - 1]}…"
    return f"{text} [{tool.trouble}]" if tool.trouble else text


def print_answer(answer: host_api_pb2.CallToolResponse) -> None:
    """Prints what a tool answered: texts and JSON as they are, a line for everything else."""
    for part in answer.parts:
        print(visible(_shown(part)))
    if answer.HasField("result_json"):
        print(visible(json.dumps(json.loads(answer.result_json), ensure_ascii=False, indent=2)))
    if answer.HasField("artifact"):
        print(visible(answer.preview))
        ref = answer.artifact
        notes().print(f"the whole is artifact {ref.artifact_id}, {ref.size_bytes} bytes")


def _shown(part: types_pb2.ContentPart) -> str:
    kind = part.WhichOneof("content")
    if kind == "text":
        return part.text
    if kind == "inline":
        return f"[{part.inline.mime_type}, {len(part.inline.data)} bytes]"
    if kind == "artifact":
        ref = part.artifact
        return f"[{ref.mime_type}, {ref.size_bytes} bytes: artifact {ref.artifact_id}]"
    return f"[{part.url.url}]" if kind == "url" else f"[{kind}]"
