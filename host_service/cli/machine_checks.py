"""What `runmesh doctor` looks at on the machine: the data folder, the host, sockets and ports."""

import os
import shutil
import socket
import stat
from pathlib import Path

from host_service.cli.failures import CommandError
from host_service.cli.findings import Finding, Findings, fine, problem, warning
from host_service.cli.options import is_loopback
from host_service.cli.running_host import RunningHost, host_holds, read_host_file

_OTHERS = 0o077
_MEBIBYTE = 1024 * 1024
_LITTLE_SPACE = 1024 * _MEBIBYTE
_NO_SPACE = 100 * _MEBIBYTE
# What others must not read: keys, and what users wrote.
_PRIVATE = ("operator.key", "secret.key", "host.json", "runmesh.db", "runmesh.db-wal")


def check_data_folder(folder: Path) -> Findings:
    """Whether the data folder is ours, private, and has room."""
    area = "data folder"
    try:
        status = folder.stat()
    except FileNotFoundError:
        yield warning(area, f"{folder} is not there yet", "'runmesh up' makes it, or see --data")
        return
    except OSError as error:
        yield problem(area, f"{folder}: {error.strerror}", "make it accessible, or see --data")
        return
    if status.st_uid != os.getuid():
        yield problem(
            area, f"{folder} belongs to user {status.st_uid}", "run as that user, or see --data"
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield problem(area, f"{folder} cannot be written", f"chmod 700 {folder}")
    elif status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        yield problem(area, f"{folder} is open to others (mode {mode:04o})", f"chmod 700 {folder}")
    else:
        yield fine(area, f"{folder} is ours alone")
    yield from _check_files(folder)
    yield from _check_space(folder)


def _check_files(folder: Path) -> Findings:
    for name in _PRIVATE:
        try:
            mode = stat.S_IMODE((folder / name).stat().st_mode)
        except OSError:
            # Not there, or hidden by the folder's mode, which was told.
            continue
        if mode & _OTHERS:
            told = f"{name} is open to others (mode {mode:04o})"
            yield problem("data folder", told, f"chmod 600 {folder / name}")


def _check_space(folder: Path) -> Findings:
    free = shutil.disk_usage(folder).free
    told = f"{free // _MEBIBYTE} MiB are free"
    if free < _NO_SPACE:
        yield problem("data folder", told, "make room: nothing can be stored on a full disk")
    elif free < _LITTLE_SPACE:
        yield warning("data folder", told, "make room, or remove old content with 'runmesh purge'")
    else:
        yield fine("data folder", told)


def check_host(folder: Path) -> Findings:
    """Whether a host runs on the data folder, and answers."""
    held = host_holds(folder)
    try:
        host = read_host_file(folder)
    except CommandError as error:
        yield problem("host", error.message, error.advice or "make it readable")
        return
    if host is None:
        if held:
            yield warning("host", "a host starts or stops now", "ask again in some seconds")
        else:
            yield fine("host", "none runs on the data folder")
    elif not held:
        told = f"the last one (process {host.process_id}) did not end well"
        yield warning("host", told, "start it again: its runs are ended, and nothing is lost")
    else:
        yield _answering(host)


def _answering(host: RunningHost) -> Finding:
    address = host.address()
    if address is None:
        told = f"process {host.process_id} runs, and none of its addresses answers"
        return problem("host", told, "look at its log, and start it again")
    return fine("host", f"process {host.process_id} answers on {address}")


def check_sockets() -> Findings:
    """Whether there is a folder whose path is short enough for unix sockets."""
    from host_service.supervisor.errors import SocketPathTooLong
    from host_service.supervisor.sockets import SocketFolder

    try:
        with SocketFolder.create() as made:
            path = made.new_path()
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
            size = len(os.fsencode(path))
            yield fine("sockets", f"can be made in {made.path.parent} ({size} bytes of path)")
    except SocketPathTooLong as error:
        yield problem("sockets", str(error), "set XDG_RUNTIME_DIR or TMPDIR to a short path")
    except OSError as error:
        told = f"none can be made: {error.strerror}"
        yield problem("sockets", told, "set XDG_RUNTIME_DIR to a folder that can be written")


def check_limits(host: RunningHost | None) -> Findings:
    """What holds the limits of plugins: those of the host that runs, or of one started here."""
    from host_service.supervisor.cgroup_place import controllers_of
    from host_service.supervisor.cgroups import in_force_for, look
    from host_service.supervisor.errors import CgroupUnusable

    area = "limits"
    if host is not None:
        delegated = in_force_for(host.process_id)
        if delegated is not None:
            held = " and ".join(sorted(delegated.holds, reverse=True))
            yield fine(area, f"the kernel holds those of plugins in {delegated.base}: {held}")
        else:
            yield fine(area, "the host looks after the memory of plugins itself, every second")
        return
    try:
        base = look()
    except CgroupUnusable as reason:
        told = "a host started here would look after the memory of plugins itself"
        yield fine(area, f"{told}: {reason}")
        return
    held = " and ".join(sorted(controllers_of(base), reverse=True))
    yield fine(area, f"the kernel would hold those of plugins in {base}: {held}")


def check_port(address: str, option: str, folder: Path, *, has_tls: bool = False) -> Findings:
    """Whether a host could listen on an address, where none of this data folder does."""
    if not address or address.startswith("unix:"):
        return
    if host_holds(folder):
        return
    name, _, port = address.rpartition(":")
    name = name.strip("[]")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            name, int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As a host does it: what lately was connected there is not in the way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        told = f"{address} cannot be listened on: {error.strerror}"
        yield problem("ports", told, f"stop what listens there, or choose another {option}")
        return
    if has_tls or is_loopback(address):
        yield fine("ports", f"{address} is free")
    else:
        yield warning("ports", f"{address} is free, and others reach it", "give --tls-cert")
