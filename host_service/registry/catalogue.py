"""What is known of runners themselves: their manifests, and what is wrong with those left out."""

import logging
from collections.abc import Iterable

from runmesh.v1 import manifest_pb2

from host_service.registry.instance import Instance
from host_service.registry.records import ManifestFault, plugin_of

_log = logging.getLogger("runmesh.registry")


class Catalogue:
    """The manifests of all runners, each as the newest instance of its plugin declares it."""

    def __init__(self) -> None:
        self._manifests: dict[str, manifest_pb2.RunnerManifest] = {}
        self._reported: dict[str, tuple[ManifestFault, ...]] = {}

    def manifests(self) -> tuple[manifest_pb2.RunnerManifest, ...]:
        """All manifests, by runner id."""
        return tuple(self._manifests[runner_id] for runner_id in sorted(self._manifests))

    def manifest(self, runner_id: str) -> manifest_pb2.RunnerManifest | None:
        """One runner's manifest; None for an unknown runner."""
        return self._manifests.get(runner_id)

    def learn(self, plugin_id: str, instances: Iterable[Instance]) -> None:
        """Keeps what a plugin's instances declare, the newest last; its other runners go."""
        self.forget(plugin_id)
        for instance in instances:
            if not instance.lost.is_set():
                self._manifests.update(instance.manifests)

    def forget(self, plugin_id: str) -> None:
        """The plugin is gone, and its runners with it."""
        for runner_id in [each for each in self._manifests if plugin_of(each) == plugin_id]:
            del self._manifests[runner_id]

    def report_faults(self, source: str, faults: Iterable[ManifestFault]) -> bool:
        """Keeps what is wrong with a plugin's own manifest in place of the source's last report.

        Returns:
            Whether that is news.
        """
        reported = tuple(faults)
        if self._reported.get(source, ()) == reported:
            return False
        for fault in reported:
            _log.warning("a plugin is left out: %s", fault)
        self._reported[source] = reported
        return True

    def faults(self, instances: Iterable[Instance]) -> tuple[ManifestFault, ...]:
        """What is wrong with plugins' own manifests, and with those that instances declare."""
        found = {fault for reported in self._reported.values() for fault in reported}
        for instance in instances:
            found.update(instance.introduction.faults)
        return tuple(sorted(found, key=lambda each: (each.plugin_id, each.runner_id, each.field)))
