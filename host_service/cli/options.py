"""Options that several commands take, and the forms their values must have."""

import os
import re
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from host_service.certificates.files import SYSTEM, DialFiles
from host_service.cli.tls_options import check_query
from host_service.durations import parse_duration
from host_service.settings import default_data_folder

# sockaddr_un.sun_path without its closing zero.
_LONGEST_SOCKET_PATH = 107
_TLS_SCHEMES = ("https", "grpcs")
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")
_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
_RUNNER = re.compile(rf"({_NAME}/{_NAME})=(\S+)")
_DATABASE = re.compile(r"[a-z][a-z0-9]*(?:\+[a-z0-9]+)?://\S*")
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]*@")


def data_folder(chosen: Path | None) -> Path:
    """The data folder that a command works with, as an absolute path."""
    return (chosen.expanduser() if chosen else default_data_folder()).absolute()


def plugin_id(value: str) -> str:
    """Checks that a text is a plugin's id, `AUTHOR/NAME`."""
    if not re.fullmatch(rf"{_NAME}/{_NAME}", value):
        raise typer.BadParameter(f"{value!r} is not AUTHOR/NAME, in lower case")
    return value


def duration(value: str) -> timedelta:
    """Reads a duration such as `90d`."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def folder(value: str) -> Path:
    """Checks that a path is a folder's, or could become one."""
    path = Path(value)
    if path.exists() and not path.is_dir():
        raise typer.BadParameter(f"{value!r} is not a folder")
    return path


def listen_address(value: str) -> str:
    """Checks where to listen: `HOST:PORT`, `[IPV6]:PORT` or `unix:/path`."""
    if _is_socket(value) or _is_host_and_port(value):
        return value
    raise typer.BadParameter(f"{value!r} is not HOST:PORT, [IPV6]:PORT or unix:/absolute/path")


def http_address(value: str) -> str:
    """Checks where to listen for HTTP; empty or `off` means nowhere."""
    if value in {"", "off"}:
        return ""
    if _is_host_and_port(value):
        return value
    raise typer.BadParameter(f"{value!r} is not HOST:PORT, [IPV6]:PORT, or off")


def advertise_address(value: str) -> str:
    """Checks where others are to reach a listener."""
    if _is_host_and_port(value):
        return value
    raise typer.BadParameter(f"{value!r} is not HOST:PORT or [IPV6]:PORT")


def dial_address(value: str) -> str:
    """Checks what to connect to: as for listening, or a name that DNS resolves."""
    if _is_socket(value) or _is_host_and_port(value) or _is_dns(value):
        return value
    raise typer.BadParameter(f"{value!r} is not HOST:PORT, unix:/absolute/path or dns:///NAME:PORT")


def host_address(value: str) -> str:
    """Checks where a host is; a scheme may say that it has TLS."""
    scheme, _, place = value.rpartition("://")
    if scheme in _TLS_SCHEMES and _is_host_and_port(place):
        return value
    return dial_address(value)


def positive_number(value: str) -> int:
    """Checks a count of things."""
    number = whole_number(value)
    if number == 0:
        raise typer.BadParameter(f"{value!r} is not a whole number above 0")
    return number


def whole_number(value: str) -> int:
    """Checks a number that the contract has 64 bits for."""
    # A default comes as the number that it is.
    if not re.fullmatch(r"[0-9]{1,19}", str(value)) or int(value) >= 2**63:
        raise typer.BadParameter(f"{value!r} is not a whole number")
    return int(value)


def static_runner(value: str) -> tuple[str, str]:
    """Splits `author/name=ADDRESS` into the plugin's id and where it listens."""
    match = _RUNNER.fullmatch(value)
    if not match:
        raise typer.BadParameter(
            f"{value!r} is not AUTHOR/NAME=ADDRESS, such as acme/helpdesk=127.0.0.1:7443"
        )
    dial_address(check_query(match[2]))
    return match[1], match[2]


def database_url(value: str) -> str:
    """Checks the form of a database URL; its password stays out of the message."""
    if _DATABASE.fullmatch(value):
        return value
    shown = _PASSWORD.sub(r"\1:***@", value)
    raise typer.BadParameter(
        f"{shown!r} is not a database URL, such as postgresql+psycopg://USER@HOST/NAME "
        "or sqlite:////absolute/path.db"
    )


def is_loopback(address: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    if address.startswith("unix:"):
        return True
    host = address.removeprefix("dns:///").rpartition(":")[0].strip("[]").lower()
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        # A name: where it leads is for DNS to say.
        return False


def _is_socket(value: str) -> bool:
    if not value.startswith("unix:/"):
        return False
    path = value.removeprefix("unix:")
    size = len(os.fsencode(path))
    if size > _LONGEST_SOCKET_PATH:
        raise typer.BadParameter(
            f"{path!r} has {size} bytes; a socket's path has at most {_LONGEST_SOCKET_PATH}"
        )
    return True


def _is_host_and_port(value: str) -> bool:
    match = _HOST_AND_PORT.fullmatch(value)
    return match is not None and int(match[1]) <= 65535


def _is_dns(value: str) -> bool:
    return value.startswith("dns:///") and _is_host_and_port(value.removeprefix("dns:///"))


DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="RUNMESH_DATA",
        parser=folder,
        help="The data folder.  [default: $XDG_DATA_HOME/runmesh]",
        show_default=False,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        envvar="RUNMESH_ADDRESS",
        parser=host_address,
        help="A host elsewhere, HOST:PORT, or https://HOST:PORT for TLS with an authority that "
        "this machine trusts; its API key comes from RUNMESH_API_KEY.",
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        parser=Path,
        help="With --address: use TLS; who signed the host's certificate, or 'system'. Also "
        "RUNMESH_CA.",
    ),
]
CertOption = Annotated[
    Path | None,
    typer.Option(
        "--cert",
        metavar="FILE",
        parser=Path,
        help="The certificate to show to a host that asks for one. Also RUNMESH_CERT.",
    ),
]
CertKeyOption = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", parser=Path, help="Its key. Also RUNMESH_CERT_KEY."),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="RUNMESH_INSECURE",
        help="With --address: send the API key over a network without TLS.",
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON with the contract's names.")]


@dataclass(frozen=True, slots=True)
class Target:
    """Which host a command talks to: the one on a data folder, or one at an address.

    Attributes:
        data_folder: The data folder.
        address: A gRPC target; None: what the data folder says.
        insecure: Whether the API key may go over a network without TLS.
        tls: What the connection trusts and shows; None: what the data folder says, and without TLS
            at an address.
    """

    data_folder: Path
    address: str | None = None
    insecure: bool = False
    tls: DialFiles | None = None


def target(
    data: Path | None,
    address: str | None,
    insecure: bool,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
) -> Target:
    """Makes a target of the options that choose it, and of the environment."""
    scheme, _, place = (address or "").rpartition("://")
    wants_tls = scheme in _TLS_SCHEMES
    ca = ca or _path_of("RUNMESH_CA") or (SYSTEM if wants_tls else None)
    cert, key = cert or _path_of("RUNMESH_CERT"), key or _path_of("RUNMESH_CERT_KEY")
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key go together")
    if cert is not None and ca is None:
        raise typer.BadParameter("--cert is shown over TLS: give --ca FILE, or --ca system")
    return Target(
        data_folder=data_folder(data),
        address=place if wants_tls else address,
        insecure=insecure,
        tls=DialFiles(ca=ca, certificate=cert, key=key) if ca else None,
    )


def _path_of(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None
