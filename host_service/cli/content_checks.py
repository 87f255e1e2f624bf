"""What `runmesh doctor` looks at of a host's content: database, blobs, secrets, clocks, plugins."""

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from host_service.cli.findings import Finding, Findings, fine, problem, warning
from host_service.settings import shipped_plugins_folder
from host_service.supervisor.errors import ManifestInvalid
from host_service.supervisor.folders import PluginFolders
from host_service.supervisor.manifest import Command, PluginManifest
from stores.errors import StoreError
from stores.inspected import BlobsReport, DatabaseReport
from stores.inspection import inspect_blobs, inspect_database
from stores.limits import StoreLimits
from stores.schema import SchemaState, read_schema_state
from stores.secret_keys import VARIABLE, SecretKeys, load_secret_keys

_MEBIBYTE = 1024 * 1024
# SQLite folds its log in at about 4 MiB; far more says that something keeps it from that.
_LARGE_WAL = 256 * _MEBIBYTE
# A lease lasts for some seconds: clocks that differ by more end each other's.
_CLOCKS_DIFFER_SECONDS = 1.0
_CLOCKS_FAR_SECONDS = 5.0
_NAMED = 3
_DAY_SECONDS = 86_400


def check_database(url: str, blobs_url: str | None, key_file: Path) -> Findings:
    """Whether the database answers, has our schema, and is whole; then what depends on it."""
    try:
        state = read_schema_state(url)
    except StoreError as error:
        yield problem("database", str(error), "check --database, and whether the server runs")
        return
    if not state.is_current:
        yield _outdated(state)
        return
    try:
        report = inspect_database(url)
    except StoreError as error:
        yield problem("database", str(error), "restore it from a backup if its files are damaged")
        return
    yield fine("database", f"{report.engine} answers, schema revision {state.newest}")
    yield from _check_files(report)
    yield _vectors(report)
    yield from _check_hosts(report)
    yield from _check_actions(report)
    yield from _check_clocks(report)
    yield from _check_secrets(report, key_file)
    yield from _check_blobs(url, blobs_url)


def _outdated(state: SchemaState) -> Finding:
    if state.found is None:
        return warning("database", "there is nothing in it yet", "'runmesh up' makes its tables")
    told = f"it has schema revision {state.found}, this version needs {state.newest}"
    return problem("database", told, "stop its hosts and run 'runmesh migrate'")


def _vectors(report: DatabaseReport) -> Finding:
    if report.vectors is not None:
        return fine("database", f"{report.vectors} compares vectors where there are very many")
    told = "vectors are compared outside the database"
    # Most have few, and want nothing better.
    if report.most_passages <= StoreLimits().unindexed_passages:
        return fine("database", f"{told}, which is fast enough for those that there are")
    return warning("database", f"{told}, and there are very many", report.without_vectors or "")


def _check_files(report: DatabaseReport) -> Findings:
    for fault in report.faults:
        yield problem(
            "database",
            f"its files are damaged: {fault}",
            "stop the host, keep a copy of the files, and restore a backup",
        )
    if not report.faults:
        yield fine("database", "its files are whole, as far as a quick check tells")
    if report.wal_bytes is not None and report.wal_bytes > _LARGE_WAL:
        told = f"the write-ahead log has {report.wal_bytes // _MEBIBYTE} MiB"
        yield warning("database", told, "end what reads for long, or start the host again")


def _check_hosts(report: DatabaseReport) -> Findings:
    if report.living_hosts:
        yield fine("database", f"{len(report.living_hosts)} hosts run on it")
    if report.lost_hosts:
        told = f"{len(report.lost_hosts)} hosts ended in the middle of runs"
        yield warning("database", told, "start a host on it: it ends these runs")


def _check_actions(report: DatabaseReport) -> Findings:
    if report.awaiting_actions:
        days = int(report.oldest_awaiting_seconds // _DAY_SECONDS)
        since = f", the oldest for {days} days" if days else ""
        told = f"{report.awaiting_actions} wait for somebody's approval{since}"
        yield warning("actions", told, "'runmesh actions list --status awaiting_approval'")


def _check_clocks(report: DatabaseReport) -> Findings:
    ahead = report.clock_ahead_seconds
    if ahead is not None:
        told = f"the database's clock is {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}"
        advice = "let NTP set the clocks of both machines"
        if abs(ahead) > _CLOCKS_FAR_SECONDS:
            yield problem("clocks", told, advice)
        elif abs(ahead) > _CLOCKS_DIFFER_SECONDS:
            yield warning("clocks", told, advice)
        else:
            yield fine("clocks", "this machine's and the database's agree")
    if report.newest_ahead_seconds > _CLOCKS_FAR_SECONDS:
        told = f"the newest run was made {report.newest_ahead_seconds:.0f} s from now"
        yield warning("clocks", told, "the clock went back: let NTP set it")
    elif ahead is None:
        yield fine("clocks", "nothing in the database is from the future")


def _check_secrets(report: DatabaseReport, key_file: Path) -> Findings:
    area = "secret key"
    try:
        keys = _secret_keys(key_file)
    except StoreError as error:
        yield problem(area, str(error), "mend the key: secrets are encrypted with it")
        return
    missing = [key_id for key_id in report.secret_key_ids if keys.find(key_id) is None]
    if missing:
        yield problem(
            area,
            f"secrets are encrypted with keys that are not here: {', '.join(missing)}",
            f"give the keys back, in {key_file} or {VARIABLE}, or store the secrets again",
        )
    elif keys.keys:
        yield fine(area, f"{len(keys.keys)} there, and no secret needs another")
    else:
        yield warning(area, "there is none yet", "'runmesh up' makes one; then back it up")


def _secret_keys(key_file: Path) -> SecretKeys:
    # Only looked at: loading would make the file.
    if VARIABLE not in os.environ and not key_file.exists():
        return SecretKeys()
    return load_secret_keys(os.environ, key_file)


def _check_blobs(url: str, blobs_url: str | None) -> Findings:
    try:
        report = asyncio.run(inspect_blobs(url, blobs_url=blobs_url))
    except StoreError as error:
        yield problem("blobs", str(error), "check --blobs")
        return
    yield _told_blobs(report)


def _told_blobs(report: BlobsReport) -> Finding:
    if report.lost:
        named = ", ".join(report.lost[:_NAMED])
        told = f"{len(report.lost)} of {report.looked_at} are not there, such as {named}"
        return problem("blobs", told, "check --blobs, or restore the blob store from a backup")
    return fine(
        "blobs",
        f"{report.artifacts} artifacts, {report.size_bytes} bytes; of the newest "
        f"{report.looked_at} none is missing",
    )


def check_plugins(data: Path, more: Sequence[Path]) -> Findings:
    """Whether the manifests of all plugins are valid, and their programs there."""
    found = PluginFolders([shipped_plugins_folder(), data / "plugins", *more]).scan()
    for folder, manifest in found.items():
        if isinstance(manifest, ManifestInvalid):
            for fault in manifest.faults:
                told = f"{folder}: {fault.field} {fault.rule}"
                yield problem("plugins", told, "mend its manifest, or take the folder away")
        else:
            yield _check_program(manifest)
    if not found:
        yield warning("plugins", "there are none", "put some in plugins/ of the data folder")


def _check_program(manifest: PluginManifest) -> Finding:
    program = manifest.run.words[0] if isinstance(manifest.run, Command) else sys.executable
    place = str(manifest.folder / program) if "/" in program else program
    if shutil.which(place) is None:
        told = f"{manifest.plugin_id}: its program {program} is not there, or not executable"
        return problem("plugins", told, "install it, or mend run.command in its manifest")
    return fine("plugins", f"{manifest.plugin_id} {manifest.version} can be started")
