"""The SDKs of other languages that a host has with it, for the plugins that are made with it.

An installed host carries them; in a source tree they are where they are written.
"""

from pathlib import Path

from host_service.packages.errors import ScaffoldRefused

_PACKAGE = Path(__file__).parents[1]


def carried_sdk(language: str) -> Path:
    """The folder that has a language's SDK.

    Raises:
        ScaffoldRefused: There is none in this installation.
    """
    for place in (_PACKAGE / "shipped_sdks", _PACKAGE.parent / "sdk"):
        if (place / language).is_dir():
            return place / language
    raise ScaffoldRefused(
        f"this installation does not carry the SDK for {language}", "install runmesh from its wheel"
    )
