"""How a host is set up: frozen once it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from host_service.certificates.files import DialDefaults, ListenFiles
from host_service.environment_model import EnvironmentModel
from host_service.limits import Limits

DEFAULT_GRPC_ADDRESS = "127.0.0.1:50051"
DEFAULT_HTTP_ADDRESS = "127.0.0.1:8080"


def default_data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where a host keeps its data when nobody says: RUNMESH_DATA, else the XDG data home."""
    chosen = environment.get("RUNMESH_DATA")
    if chosen:
        return Path(chosen)
    home = environment.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "runmesh"


def shipped_plugins_folder() -> Path:
    """Return the folder of the plugins that ship: in the package, or beside it in a source tree."""
    here = Path(__file__).parent
    packaged = here / "shipped_plugins"
    return packaged if packaged.is_dir() else here.parent / "plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator may choose.

    Attributes:
        data_folder: Where the database, the operator key and the host's addresses are kept; mode
            0700.
        grpc_address: `HOST:PORT` (port 0: any free one) or `unix:/path`.
        http_address: `HOST:PORT` for health checks; empty: none.
        database_url: `sqlite:///path` or `postgresql+psycopg://...`; None: a SQLite file in the
            data folder.
        blobs_url: Where the bytes of artifacts are, `file:///path` or `s3://bucket/prefix`; None:
            `blobs/` beside a SQLite file, else in the data folder. Hosts that share a database
            share it as well.
        plugin_folders: Folders of plugin folders, beside those that ship and `plugins/` in the data
            folder.
        static_runners: Pairs of plugin id and address; `?` and what TLS needs may follow.
        config_file: YAML with agents, bindings and limits to have.
        insecure: Allow a listener that others can reach, without TLS.
        tls: What listeners on TCP show; None: they have no TLS.
        runner_tls: What connections to runners on TCP trust and show, where their address says
            nothing of it.
        advertise_address: `HOST:PORT` at which runners on other machines reach this host; empty:
            where it listens.
        log_level: `debug`, `info`, `warning` or `error`.
        quit_with_stdin: Stop when standard input ends.
        cgroups: Whether cgroups hold the limits of plugins; `auto`: where one is delegated.
        shipped_plugins: Also start the plugins that ship with the host.
        environment_model: A model that the environment names; None: it names none.
        rehearsal_script: Rules by which the rehearsal model answers; None: by itself.
        limits: How much is too much.
    """

    data_folder: Path = field(default_factory=default_data_folder)
    grpc_address: str = DEFAULT_GRPC_ADDRESS
    http_address: str = DEFAULT_HTTP_ADDRESS
    database_url: str | None = None
    blobs_url: str | None = None
    plugin_folders: tuple[Path, ...] = ()
    static_runners: tuple[tuple[str, str], ...] = ()
    config_file: Path | None = None
    insecure: bool = False
    tls: ListenFiles | None = None
    runner_tls: DialDefaults = field(default_factory=DialDefaults)
    advertise_address: str = ""
    log_level: str = "info"
    quit_with_stdin: bool = False
    cgroups: Literal["auto", "on", "off"] = "auto"
    shipped_plugins: bool = True
    environment_model: EnvironmentModel | None = None
    rehearsal_script: Path | None = None
    limits: Limits = field(default_factory=Limits)
