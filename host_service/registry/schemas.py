"""The configuration schemas that runners declare."""

from runmesh.v1 import manifest_pb2

from host_service.agents.config_schema import ConfigField, ConfigSchema
from host_service.registry.registry import Registry


class ConfigSchemas:
    """Gives the schema of a runner's configuration; made once for each manifest.

    Args:
        registry: Knows the manifests.
    """

    def __init__(self, *, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, tuple[manifest_pb2.RunnerManifest, ConfigSchema]] = {}

    def of(self, runner_id: str) -> ConfigSchema | None:
        """The schema as the runner's newest instance declares it, or None for an unknown runner."""
        manifest = self._registry.manifest(runner_id)
        if manifest is None:
            return None
        made = self._made.get(runner_id)
        if made is None or made[0] is not manifest:
            made = self._made[runner_id] = (manifest, schema_of(manifest))
        return made[1]


def schema_of(manifest: manifest_pb2.RunnerManifest) -> ConfigSchema:
    """The schema that a manifest declares."""
    return ConfigSchema(tuple(_field(each) for each in manifest.config_schema))


def _field(declared: manifest_pb2.ConfigField) -> ConfigField:
    bounds = declared.bounds
    return ConfigField(
        name=declared.name,
        type=declared.type,
        required=declared.required,
        default_json=declared.default_json if declared.HasField("default_json") else None,
        options=tuple(option.value for option in declared.options),
        min=bounds.min if bounds.HasField("min") else None,
        max=bounds.max if bounds.HasField("max") else None,
        max_length=bounds.max_length if bounds.HasField("max_length") else None,
        pattern=bounds.pattern if bounds.HasField("pattern") else None,
    )
