"""An apply: messages into what is declared, each object by itself, and all of it done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from google.protobuf.message import Message
from runmesh.admin.v1 import admin_pb2

from host_service import wire, wire_catalogue
from host_service.agents.changes import Outcome
from host_service.agents.declared import Declared
from host_service.agents.directory import AgentDirectory
from host_service.authorization.policy import WorkspacePolicy
from host_service.catalogue.plugin_settings import PluginSettings
from host_service.errors import FieldFault, InvalidArgument
from host_service.requests import RequestCheck
from stores.errors import InvalidRecord
from stores.secrets import SecretChange

One = TypeVar("One", bound=Message)
Made = TypeVar("Made")


async def apply_request(
    request: admin_pb2.ApplyRequest, *, directory: AgentDirectory, check: RequestCheck
) -> Outcome:
    """Have what a request declares, all or none.

    Raises:
        InvalidArgument: Objects break rules. Every fault of every object is named: those of the
            contract's rules, those of runners' schemas, and what is named and not there.
        PayloadTooLarge: A field is larger than its limit.
        BindingConflict: Two bindings would match alike.
    """
    faults: list[FieldFault] = []
    try:
        check.require(request)
    except InvalidArgument as error:
        faults += error.faults
    return await directory.apply(_Reader(faults, directory).read(request), dry_run=request.dry_run)


class _Reader:
    """Reads the objects that keep the contract's rules; the others have told their faults."""

    def __init__(self, faults: list[FieldFault], directory: AgentDirectory) -> None:
        self._faults = faults
        self._directory = directory
        # `agents[3]` of `agents[3].state.scopes[0]`; a list as a whole may have faults as well.
        self._faulty = {fault.field.partition(".")[0] for fault in faults}

    def read(self, request: admin_pb2.ApplyRequest) -> Declared:
        models = dict(self._sound("models", request.models))
        servers = dict(self._sound("tool_servers", request.tool_servers))
        plugins = dict(self._sound("plugins", request.plugins))
        return Declared(
            agents=_each(wire.agent_from_message, self._sound("agents", request.agents)),
            bindings=_each(wire.binding_from_message, self._sound("bindings", request.bindings)),
            models=_each(wire_catalogue.model_from_message, models.items()),
            tool_servers=_each(wire_catalogue.tool_server_from_message, servers.items()),
            knowledge_bases=_each(
                wire_catalogue.knowledge_base_from_message, self._knowledge_bases(request)
            ),
            policies=self._policies(request),
            plugins=self._plugins(plugins),
            keys=_each(wire_catalogue.key_from_message, self._sound("keys", request.keys)),
            secrets=[
                *_secrets(models.values(), servers.values()),
                *(
                    change
                    for each in plugins.values()
                    for change in wire_catalogue.secrets_of_plugin(each)
                ),
            ],
            faults=self._faults,
            agent_ids=frozenset(agent.id for agent in request.agents),
        )

    def _sound(self, section: str, messages: Iterable[One]) -> list[tuple[str, One]]:
        if section in self._faulty:
            return []
        placed = ((f"{section}[{i}]", message) for i, message in enumerate(messages))
        return [(path, message) for path, message in placed if path not in self._faulty]

    def _knowledge_bases(
        self, request: admin_pb2.ApplyRequest
    ) -> list[tuple[str, admin_pb2.KnowledgeBase]]:
        sound = self._sound("knowledge_bases", request.knowledge_bases)
        for path, message in sound:
            made = wire_catalogue.knowledge_base_from_message(message)
            if made.overlap_characters >= made.chunk_characters:
                self._faults.append(
                    FieldFault(
                        f"{path}.chunking.overlap_characters",
                        "less than a passage",
                        f"{made.overlap_characters} of {made.chunk_characters}",
                    )
                )
        return sound

    def _plugins(
        self, messages: Mapping[str, admin_pb2.PluginSettings]
    ) -> Mapping[str, PluginSettings]:
        plugins = _each(wire_catalogue.plugin_settings_from_message, messages.items())
        self._faults += [
            FieldFault(f"{path}.secrets", "a name that no other setting has", repr(name))
            for path, plugin in plugins.items()
            for name in plugin.doubled()
        ]
        return plugins

    def _policies(self, request: admin_pb2.ApplyRequest) -> Mapping[str, WorkspacePolicy]:
        policies = {}
        for path, message in self._sound("policies", request.policies):
            before = self._directory.shelf.policies.get(message.workspace_id)
            kept = None if before is None else before.retention
            try:
                policies[path] = wire_catalogue.policy_from_message(message, retention=kept)
            except InvalidRecord as error:
                field = f"{path}.{error.field.replace('_seconds', '')}"
                self._faults.append(FieldFault(field, error.rule, "another value"))
        return policies


def _each(make: Callable[[One], Made], placed: Iterable[tuple[str, One]]) -> Mapping[str, Made]:
    return {path: make(message) for path, message in placed}


def _secrets(
    models: Iterable[admin_pb2.Model], servers: Iterable[admin_pb2.ToolServer]
) -> list[SecretChange]:
    return [
        *(change for each in models for change in wire_catalogue.secrets_of_model(each)),
        *(change for each in servers for change in wire_catalogue.secrets_of_tool_server(each)),
    ]
