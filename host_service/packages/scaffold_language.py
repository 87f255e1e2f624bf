"""What making a plugin has to know of a language, beside the language's folder of templates."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from host_service.packages.packing import PluginFolder


class ScaffoldLanguage(Protocol):
    """A language that `runmesh init` and `runmesh component add` know.

    Attributes:
        name: Its word for `--lang`, and its folder in `scaffolds`.
    """

    @property
    def name(self) -> str:
        """See the class."""

    def plugin_values(self, plugin: str) -> Mapping[str, str]:
        """What its templates call a new plugin: at least `package`, a folder or a file's name."""

    def runner_values(self, runner: str) -> Mapping[str, str]:
        """What its templates call a runner: at least `module`, which is RUNNER in paths."""

    def further_files(self, plugin: str) -> Iterator[tuple[str, bytes]]:
        """Yields path and content of what a new plugin has beside its templates, such as an SDK.

        Raises:
            ScaffoldRefused: This installation does not have it.
        """

    def is_language_of(self, plugin: PluginFolder) -> bool:
        """Whether a plugin is written in it."""

    def package_of(self, plugin: PluginFolder) -> str:
        """`package` of a plugin that is there."""

    def served(self, plugin: PluginFolder, runner: str) -> tuple[Path, str]:
        """The file in which the plugin's runners are served, and its text with one more.

        Raises:
            ScaffoldRefused: It is written in a way that cannot be added to.
        """
