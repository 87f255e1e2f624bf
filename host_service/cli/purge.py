"""`runmesh purge` and `runmesh retention`: what workspaces keep, and removing what they do not."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from host_service.cli.database import (
    BlobsOption,
    DatabaseOption,
    blobs_of,
    open_current,
    run_on_database,
    url_of,
)
from host_service.cli.failures import CommandError, visible
from host_service.cli.options import DataOption, data_folder, positive_number
from host_service.durations import parse_duration

if TYPE_CHECKING:
    from stores import Stores
    from stores.records import Collected
    from stores.retention import Purged, RetentionPolicy

T = TypeVar("T")

_NAMES = {
    "items": "transcript items",
    "runs": "runs",
    "results": "results",
    "log_entries": "log entries",
    "actions": "actions",
    "events": "events",
    "artifacts": "artifacts",
    "state_values": "values of state",
    "agent_snapshots": "agent snapshots",
}

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_to(application: typer.Typer) -> None:
    """Adds the commands to the application."""
    application.command()(purge)
    group = typer.Typer(help="Show and set what workspaces keep.", rich_markup_mode=None)
    group.command("show")(show_retention)
    group.command("set")(set_retention)
    application.add_typer(group, name="retention")


def _duration(value: str) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def purge(
    workspace: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The only workspace to look at.  [default: all]"),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            parser=_duration,
            help="Remove what is older, such as 90d.  [default: each workspace's policy]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say about how much would be removed.")
    ] = False,
    json: JsonOption = False,
    data: DataOption = None,
    database: DatabaseOption = None,
    blobs: BlobsOption = None,
) -> None:
    """Remove old events, transcripts, runs, state and artifacts.

    In small steps beside a running host; what is under way is not touched. An event that is
    delivered again after it was removed is a new event, and starts a run. Bytes of artifacts go an
    hour after them, with the next purge.
    """
    age: object = older_than
    lifetime = age if isinstance(age, timedelta) else None

    async def work(stores: "Stores") -> "tuple[dict[str, Purged], Collected | None]":
        plans = await _plans(stores, workspace, lifetime)
        removed = {
            name: await stores.retention.purge(name, dry_run=dry_run, **plan)
            for name, plan in plans.items()
        }
        return removed, None if dry_run else await stores.artifacts.collect_orphans()

    removed, collected = _on_stores(data, database, blobs, work)
    if json:
        _print_json(removed, collected)
    else:
        _print(removed, collected, dry_run=dry_run)


def show_retention(
    json: JsonOption = False, data: DataOption = None, database: DatabaseOption = None
) -> None:
    """List the workspaces that do not keep everything."""
    from host_service.cli.display import print_table

    async def work(stores: "Stores") -> "dict[str, RetentionPolicy]":
        return await stores.retention.policies()

    policies = _on_stores(data, database, None, work)
    if json:
        print(dumps({name: asdict(policy) for name, policy in policies.items()}, indent=2))
        return
    rows = [
        [name, _span(policy.max_age_seconds), _number(policy.max_items_per_conversation)]
        for name, policy in policies.items()
    ]
    empty = "every workspace keeps everything"
    print_table(["WORKSPACE", "AGE", "ITEMS PER CONVERSATION"], rows, empty=empty)


def set_retention(
    workspace: Annotated[str, typer.Argument(metavar="WORKSPACE", help="The workspace's id.")],
    max_age: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            parser=_duration,
            help="How long it keeps what is said and done, such as 90d; at least a day.  "
            "[default: for ever]",
        ),
    ] = None,
    max_items: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            parser=positive_number,
            help="How many transcript items a conversation keeps.  [default: all]",
        ),
    ] = None,
    data: DataOption = None,
    database: DatabaseOption = None,
) -> None:
    """Set what a workspace keeps; without options, everything.

    `runmesh purge` then removes what is beyond it.
    """
    from stores.retention import RetentionPolicy

    age, items = cast("timedelta | None", max_age), cast("int | None", max_items)

    async def work(stores: "Stores") -> None:
        policy = RetentionPolicy(
            max_age_seconds=None if age is None else int(age.total_seconds()),
            max_items_per_conversation=items,
        )
        await stores.retention.set_policy(workspace, policy)

    _on_stores(data, database, None, work)
    print(f"workspace {workspace} keeps {_kept(age, items)}")


def _on_stores(
    data: Path | None,
    database: str | None,
    blobs: str | None,
    work: "Callable[[Stores], Awaitable[T]]",
) -> T:
    folder = data_folder(data)

    async def run() -> T:
        stores = await open_current(url_of(database, folder), blobs_of(blobs, database, folder))
        try:
            return await work(stores)
        finally:
            await stores.close()

    return run_on_database(run())


async def _plans(
    stores: "Stores", workspace: str | None, lifetime: timedelta | None
) -> dict[str, dict[str, Any]]:
    """What is to be removed of each workspace."""
    now = datetime.now(UTC)
    if lifetime is not None:
        names = [workspace] if workspace else await stores.retention.workspaces()
        return {name: {"before": now - lifetime} for name in names}
    policies = await stores.retention.policies()
    if workspace is not None and workspace not in policies:
        raise CommandError(
            f"workspace {workspace!r} keeps everything",
            f"say --older-than, or 'runmesh retention set {workspace} --max-age 90d' first",
        )
    return {
        name: {
            "before": None
            if policy.max_age_seconds is None
            else now - timedelta(seconds=policy.max_age_seconds),
            "max_items": policy.max_items_per_conversation,
        }
        for name, policy in policies.items()
        if workspace in (None, name)
    }


def _print_json(removed: "Mapping[str, Purged]", collected: "Collected | None") -> None:
    told: dict[str, Any] = {
        "workspaces": {name: asdict(purged) for name, purged in removed.items()}
    }
    if collected is not None:
        told |= {
            "expired_artifacts": collected.artifacts,
            "blobs": collected.blobs,
            "blob_bytes": collected.size_bytes,
        }
    print(dumps(told, indent=2))


def _print(
    removed: "Mapping[str, Purged]", collected: "Collected | None", *, dry_run: bool
) -> None:
    verb = "would remove about" if dry_run else "removed"
    for workspace, purged in removed.items():
        counts = [f"{count} {_NAMES[name]}" for name, count in asdict(purged).items() if count]
        print(f"workspace {visible(workspace)}: {verb} {', '.join(counts) or 'nothing'}")
    if not removed:
        print("every workspace keeps everything: see 'runmesh retention set --help'")
    if collected is not None and (collected.artifacts or collected.blobs):
        print(
            f"removed {collected.artifacts} expired artifacts, and {collected.blobs} blobs "
            f"that nothing refers to, with {collected.size_bytes} bytes"
        )


def _kept(age: timedelta | None, items: int | None) -> str:
    parts = []
    if age is not None:
        parts.append(f"what is no older than {_span(int(age.total_seconds()))}")
    if items is not None:
        parts.append(f"{items} items of each conversation at most")
    return ", and ".join(parts) or "everything"


def _span(seconds: int | None) -> str:
    if seconds is None:
        return "for ever"
    return f"{seconds // 86_400}d" if seconds % 86_400 == 0 else f"{seconds}s"


def _number(value: int | None) -> str:
    return "all" if value is None else str(value)
