"""AdminService's calls about plugins: what is set for them, and what their processes do."""

from __future__ import annotations

from runmesh.admin.v1 import admin_pb2, admin_pb2_grpc, plugins_pb2

from host_service import wire_catalogue
from host_service.admin_audit import AdminAudit
from host_service.agents.directory import AgentDirectory
from host_service.errors import Conflict, NotFound
from host_service.interceptors import Context
from host_service.pages import PageTokens, page_of
from host_service.registry.instance import Instance
from host_service.registry.registry import Registry
from host_service.requests import RequestCheck
from host_service.supervisor.supervisor import Supervisor
from stores.records import CatalogueKind


class PluginCalls(admin_pb2_grpc.AdminServiceServicer):
    """Decodes, does one thing, encodes. A part of `AdminServicer`, which gives it what it needs.

    Attributes:
        _directory: What is declared.
        _registry: Knows the instances.
        _supervisor: Starts and replaces processes.
        _check: Refuses bad requests.
        _pages: Makes page tokens.
        _audit: Where changes are written down.
    """

    _directory: AgentDirectory
    _registry: Registry
    _supervisor: Supervisor
    _check: RequestCheck
    _pages: PageTokens
    _audit: AdminAudit

    async def GetPluginSettings(
        self, request: admin_pb2.GetPluginSettingsRequest, context: Context
    ) -> admin_pb2.GetPluginSettingsResponse:
        """Read what was set for one plugin."""
        self._check.require(request)
        found = self._directory.shelf.plugins.get(request.plugin_id)
        if found is None:
            raise NotFound("settings of plugin", request.plugin_id)
        return admin_pb2.GetPluginSettingsResponse(
            settings=wire_catalogue.plugin_settings_message(found)
        )

    async def ListPluginSettings(
        self, request: admin_pb2.ListPluginSettingsRequest, context: Context
    ) -> admin_pb2.ListPluginSettingsResponse:
        """List what was set, by plugin."""
        self._check.require(request)
        plugins = self._directory.shelf.plugins
        ids = sorted(plugins)
        page, cursor = page_of(
            ids,
            cursor=self._pages.read(request),
            size=self._pages.size(request.page_size),
            keys=ids,
        )
        return admin_pb2.ListPluginSettingsResponse(
            settings=[wire_catalogue.plugin_settings_message(plugins[each]) for each in page],
            next_page_token=self._pages.issue(request, cursor),
        )

    async def DeletePluginSettings(
        self, request: admin_pb2.DeletePluginSettingsRequest, context: Context
    ) -> admin_pb2.DeletePluginSettingsResponse:
        """Remove what was set for a plugin."""
        self._check.require(request)
        with self._audit.watched("DeletePluginSettings", f"plugin {request.plugin_id}"):
            existed = await self._directory.delete_item(CatalogueKind.PLUGIN, request.plugin_id)
        return admin_pb2.DeletePluginSettingsResponse(existed=existed)

    async def RestartPlugin(
        self, request: plugins_pb2.RestartPluginRequest, context: Context
    ) -> plugins_pb2.RestartPluginResponse:
        """Start another process of a plugin."""
        self._check.require(request)
        with self._audit.watched("RestartPlugin", f"plugin {request.plugin_id}"):
            if not self._supervisor.restart(request.plugin_id):
                raise NotFound("plugin that this host runs", request.plugin_id)
        return plugins_pb2.RestartPluginResponse()

    async def DrainInstance(
        self, request: plugins_pb2.DrainInstanceRequest, context: Context
    ) -> plugins_pb2.DrainInstanceResponse:
        """Give an instance no more runs."""
        self._check.require(request)
        with self._audit.watched("DrainInstance", f"instance {request.instance_id}"):
            instance = self._instance(request.instance_id)
            self._registry.hold(instance)
        return plugins_pb2.DrainInstanceResponse(active_runs=instance.active_runs)

    async def ResumeInstance(
        self, request: plugins_pb2.ResumeInstanceRequest, context: Context
    ) -> plugins_pb2.ResumeInstanceResponse:
        """Give an instance that was drained runs again."""
        self._check.require(request)
        with self._audit.watched("ResumeInstance", f"instance {request.instance_id}"):
            instance = self._instance(request.instance_id)
            if not self._registry.resume(instance):
                raise Conflict(f"it does not serve for another reason: {instance.problem}")
        return plugins_pb2.ResumeInstanceResponse()

    def _instance(self, instance_id: str) -> Instance:
        found = self._registry.find(instance_id)
        if found is None:
            raise NotFound("instance", instance_id)
        return found
