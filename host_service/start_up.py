"""What happens once when a host starts: its configuration read, its keys and agents there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from host_service.actions.executors import ActionExecutors
from host_service.actions.webhook import Webhook
from host_service.agents.directory import AgentDirectory
from host_service.authorization.callers import Role
from host_service.authorization.secrets import API_KEY_PREFIX, hash_secret, new_secret
from host_service.configuration import Configuration, ConfigurationError, load_configuration
from host_service.data_folder import DataFolder
from host_service.declarations import apply_request
from host_service.errors import HostError, InvalidArgument, StartupError
from host_service.identity import new_id
from host_service.limits import Limits
from host_service.rehearsal.script import ScriptFile
from host_service.requests import RequestCheck
from stores import Stores, open_stores
from stores.errors import InvalidBlobsUrl, StoreError
from stores.keys import ApiKeys
from stores.limits import StoreLimits
from stores.records import ApiKeyRecord
from stores.secret_keys import load_secret_keys
from stores.secrets import Secrets

_log = logging.getLogger("runmesh.host")

_ADVICE = "mend it, or start without --config"


def read_configuration(path: Path | None) -> Configuration | None:
    """Return what the configuration file says; None without one.

    Raises:
        StartupError: It cannot be read.
    """
    if path is None:
        return None
    try:
        return load_configuration(path)
    except (ConfigurationError, OSError) as error:
        raise StartupError(f"the configuration cannot be used: {error}", _ADVICE) from error


def rehearsal_script(path: Path | None) -> ScriptFile | None:
    """Return the rules of the rehearsal model; None without a file.

    Raises:
        StartupError: They cannot be read, or will not do.
    """
    if path is None:
        return None
    try:
        return ScriptFile(path)
    except ConfigurationError as error:
        raise StartupError(
            f"the script of the rehearsal model cannot be used: {error}",
            "mend it, or start without --rehearsal-script",
        ) from error


def effective_limits(limits: Limits, configuration: Configuration | None) -> Limits:
    """Return the limits with what the configuration sets otherwise.

    Raises:
        StartupError: It sets one that is not known, or sets it to nonsense.
    """
    try:
        return limits.with_overrides(configuration.limits) if configuration else limits
    except ValueError as error:
        raise StartupError(str(error), "mend the configuration file") from error


def make_executors(
    configuration: Configuration | None, *, limits: Limits, clock: Callable[[], datetime]
) -> ActionExecutors:
    """Return what executes the actions of runs.

    Raises:
        StartupError: A webhook's secret is none.
    """
    executors = {}
    for webhook in configuration.webhooks if configuration else ():
        try:
            executors[webhook.action] = Webhook(
                url=webhook.url,
                secret=webhook.secret,
                timeout_seconds=webhook.timeout_seconds,
                most_bytes=limits.action_answer_bytes,
                clock=clock,
            )
        except ValueError as error:
            raise StartupError(
                f"the secret of the webhook of {webhook.action!r}: {error}", _ADVICE
            ) from error
    return ActionExecutors(executors)


async def open_database(
    url: str, *, secret_key_file: Path, blobs_url: str | None, limits: Limits
) -> Stores:
    """Return the stores, with the keys of their secrets.

    Args:
        url: The database.
        secret_key_file: Holds the keys that the environment does not; made when there are none.
        blobs_url: Where the bytes of artifacts are kept; None: beside the SQLite file.
        limits: How large values of state and storage may be: what the host lets pass, the stores
            take.

    Raises:
        StartupError: The keys or the database cannot be used.
    """
    try:
        secret_keys = load_secret_keys(os.environ, secret_key_file)
    except StoreError as error:
        raise StartupError(str(error), "mend the key: secrets are encrypted with it") from error
    try:
        return await open_stores(
            url,
            secret_keys=secret_keys,
            blobs_url=blobs_url,
            limits=StoreLimits(
                state_value_bytes=limits.state_value_bytes,
                storage_value_bytes=limits.storage_value_bytes,
                # The secret values of an agent's configuration are kept as one.
                secret_bytes=max(StoreLimits().secret_bytes, limits.config_bytes),
            ),
        )
    except InvalidBlobsUrl as error:
        raise StartupError(str(error), "check --blobs") from error
    except StoreError as error:
        raise StartupError(f"the database cannot be used: {error}", "check --database") from error


async def renew_secrets(secrets: Secrets) -> None:
    """Encrypt with the newest key what is encrypted with an older one."""
    renewed = await secrets.reencrypt()
    if renewed.changed:
        _log.info("encrypted %d secrets with the newest key", renewed.changed)
    for owner, name in renewed.unreadable:
        _log.warning(
            "the secret %r of %s %r does not decrypt: give back the key it was encrypted with, "
            "or store it again",
            name,
            owner.kind,
            owner.id,
        )


async def ensure_operator_key(keys: ApiKeys, folder: DataFolder, *, at: datetime) -> None:
    """Make a key for the operator and keep it in the data folder, where nobody could get in else.

    That is so with no keys at all, and at the first start of a data folder on a database that has
    some: that of a second host, or one that was imported.
    """
    if await keys.list() and not folder.is_new:
        return
    secret = folder.operator_key(lambda: new_secret(API_KEY_PREFIX))
    if await keys.find_by_hash(hash_secret(secret)) is not None:
        return
    await keys.create(
        ApiKeyRecord(
            key_id=new_id(),
            name="operator",
            hash=hash_secret(secret),
            role=Role.OPERATOR,
            created_at=at,
        )
    )


async def apply_configuration(
    configuration: Configuration, directory: AgentDirectory, check: RequestCheck
) -> None:
    """Have what the configuration declares.

    Raises:
        StartupError: They break rules, or bindings tie.
    """
    try:
        outcome = await apply_request(configuration.request(), directory=directory, check=check)
    except InvalidArgument as error:
        # The host knows the field, the file knows its line.
        faults = [
            configuration.fault(each.field, f"{each.rule}; got {each.got}") for each in error.faults
        ]
        told = ConfigurationError(faults)
        raise StartupError(f"the configuration cannot be used: {told}", _ADVICE) from error
    except HostError as error:
        raise StartupError(f"the configuration cannot be used: {error}", _ADVICE) from error
    for warning in outcome.warnings:
        _log.warning("%s", warning)
