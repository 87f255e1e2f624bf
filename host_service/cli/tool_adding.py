"""What `runmesh tools add` and `remove` do to a tool server, and to agents with its tools."""

import asyncio
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import grpc
import typer

from host_service.cli.connection import CALL_SECONDS
from host_service.cli.failures import CommandError, tell

if TYPE_CHECKING:
    from runmesh.admin.v1 import admin_pb2, tools_pb2

    from host_service.cli.connection import HostConnection

_LONGEST_ID = 32
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9]+")
_USUAL_ENDS = re.compile(
    r"^(?:mcp[_-])?(?:server[_-])?|(?:[_-]server)?(?:[_-]mcp)?$", re.IGNORECASE
)
# As long as the host itself gives a server to answer, and a little more.
_SHOW_SECONDS = 40.0
_LOOK_SECONDS = 0.2


def described(
    server_id: str,
    *,
    command: str,
    url: str,
    env: Sequence[str],
    headers: Sequence[str],
    only: Sequence[str] | None,
) -> "admin_pb2.ToolServer":
    """What is to be added, as the contract has it.

    Args:
        server_id: Its id; empty: one that the command or the address suggests.
        command: The program with its arguments; empty: it is at an address.
        url: The address.
        env: Names of variables for the program.
        headers: `NAME=env:VARIABLE`.
        only: Its tools that may be used; None: all.
    """
    from runmesh.admin.v1 import admin_pb2

    enabled = admin_pb2.ToolSelection(names=only) if only else None
    if url:
        if env:
            raise typer.BadParameter("--env is for programs: give --header", param_hint="--env")
        entries = [_header(each) for each in headers]
        there = admin_pb2.ToolAddress(url=url, headers=entries)
        return admin_pb2.ToolServer(
            id=server_id or _id_by_address(url), http=there, enabled_tools=enabled
        )
    if headers:
        raise typer.BadParameter("--header is for addresses: give --env", param_hint="--header")
    words = _words(command)
    started = admin_pb2.ToolCommand(
        command=words[0], args=words[1:], env=[_entry(each, each) for each in env]
    )
    return admin_pb2.ToolServer(
        id=server_id or _id_by_command(words), command=started, enabled_tools=enabled
    )


def _words(command: str) -> list[str]:
    """The program and its arguments; files of this folder by their whole paths."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise typer.BadParameter(f"{command!r}: {error}", param_hint="--mcp-stdio") from error
    if not words:
        raise typer.BadParameter("the command is empty", param_hint="--mcp-stdio")
    # The host starts it in a folder of its own.
    return [
        str(Path(word).absolute()) if _is_file_here(word, is_program=not index) else word
        for index, word in enumerate(words)
    ]


def _is_file_here(word: str, *, is_program: bool) -> bool:
    # A program without a slash is looked for as a shell would look for it.
    return not (word.startswith("-") or (is_program and "/" not in word)) and Path(word).exists()


def _id_by_command(words: Sequence[str]) -> str:
    names = [each for each in words if not each.startswith("-")]
    scripts = [each for each in names[1:] if re.search(r"\.(?:py|js|mjs|ts|sh)$|server|mcp", each)]
    return _id_of(Path((scripts or names)[0].partition("@")[0] or (scripts or names)[0]).stem)


def _id_by_address(url: str) -> str:
    return _id_of((urlsplit(url).hostname or "").removeprefix("www.").partition(".")[0])


def _id_of(name: str) -> str:
    short = _USUAL_ENDS.sub("", name) or name
    found = _NOT_IN_AN_ID.sub("-", short)[:_LONGEST_ID].strip("-").lower()
    if not found:
        raise CommandError("no id can be made of that", "give one: runmesh tools add ID ...")
    return found


def _header(text: str) -> "admin_pb2.SecretEntry":
    name, separator, source = text.partition("=")
    place, _, variable = source.partition(":")
    if not (name and separator and place == "env" and variable):
        raise typer.BadParameter(f"{text!r} is not NAME=env:VARIABLE", param_hint="--header")
    return _entry(name, variable)


def _entry(name: str, variable: str) -> "admin_pb2.SecretEntry":
    from runmesh.admin.v1 import admin_pb2

    if variable not in os.environ:
        raise CommandError(
            f"there is no environment variable {variable} to take the value from", "set it"
        )
    return admin_pb2.SecretEntry(name=name, value=os.environ[variable])


@dataclass(frozen=True)
class Adding:
    """A tool server that is to be added.

    Attributes:
        server: It.
        agents: Who is given all of its tools.
        is_id_given: Whether the id was given, and not made from the command.
        may_miss_agent: Whether it does not matter that such an agent is not there.
    """

    server: "admin_pb2.ToolServer"
    agents: Sequence[str]
    is_id_given: bool
    may_miss_agent: bool

    async def work(self, host: "HostConnection") -> "tools_pb2.ToolServerStatus":
        """Adds it, and returns how it is once it has answered or failed."""
        from runmesh.admin.v1 import admin_pb2

        if not self.is_id_given:
            await self._require_free(host)
        answer = await host.admin.Apply(
            admin_pb2.ApplyRequest(tool_servers=[self.server]),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        for warning in answer.warnings:
            tell(f"warning: {warning}")
        for agent_id in self.agents:
            await self._grant(host, agent_id)
        return await self._settled(host)

    async def _require_free(self, host: "HostConnection") -> None:
        """Raises where another server has the id that was made from the command."""
        from runmesh.admin.v1 import admin_pb2

        try:
            found = await host.admin.GetToolServer(
                admin_pb2.GetToolServerRequest(tool_server_id=self.server.id),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return
            raise
        before = found.tool_server
        same = (before.command.command, list(before.command.args), before.http.url) == (
            self.server.command.command,
            list(self.server.command.args),
            self.server.http.url,
        )
        if not same:
            raise CommandError(
                f"there is another tool server {self.server.id}",
                "give this one an id: runmesh tools add ID ...",
            )

    async def _grant(self, host: "HostConnection", agent_id: str) -> None:
        from runmesh.admin.v1 import tools_pb2

        name = f"{self.server.id}__*"
        try:
            answer = await host.admin.GrantTools(
                tools_pb2.GrantToolsRequest(agent_id=agent_id, grant=[name]),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND and self.may_miss_agent:
                tell(f"there is no agent {agent_id}: give {name} to one of yours")
                return
            raise
        print(f"agent {agent_id}: {'is given' if answer.changed else 'has'} {name}")

    async def _settled(self, host: "HostConnection") -> "tools_pb2.ToolServerStatus":
        from runmesh.admin.v1 import tools_pb2

        until = asyncio.get_running_loop().time() + _SHOW_SECONDS
        while True:
            found = await host.admin.ListToolServerStatuses(
                tools_pb2.ListToolServerStatusesRequest(tool_server_id=self.server.id),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            status = found.statuses[0] if found.statuses else tools_pb2.ToolServerStatus()
            is_under_way = status.state in (
                tools_pb2.TOOL_SERVER_STATE_UNSPECIFIED,
                tools_pb2.TOOL_SERVER_STATE_CONNECTING,
            )
            if not is_under_way or asyncio.get_running_loop().time() > until:
                return status
            await asyncio.sleep(_LOOK_SECONDS)


async def remove(host: "HostConnection", server_id: str) -> bool:
    """Removes a tool server, and takes its tools from agents; False: there was none."""
    from runmesh.admin.v1 import admin_pb2, tools_pb2

    from host_service.cli.paging import collect

    async def page(size: int, token: str) -> "tuple[Sequence[admin_pb2.Agent], str]":
        answer = await host.admin.ListAgents(
            admin_pb2.ListAgentsRequest(page_size=size, page_token=token),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.agents, answer.next_page_token

    deleted = await host.admin.DeleteToolServer(
        admin_pb2.DeleteToolServerRequest(tool_server_id=server_id),
        metadata=host.metadata,
        timeout=CALL_SECONDS,
    )
    for agent in await collect(page):
        names = [each for each in agent.resources.tools if each.startswith(f"{server_id}__")]
        if names:
            await host.admin.GrantTools(
                tools_pb2.GrantToolsRequest(agent_id=agent.id, withdraw=names),
                metadata=host.metadata,
                timeout=CALL_SECONDS,
            )
            print(f"agent {agent.id}: is no longer given {', '.join(names)}")
    return deleted.existed
