"""Data files get their names when they are whole, and only while their instant is pending.

They are written in the instant's marker folder, which goes away when the instant is completed or rolled back. So what a
task of a killed run or the slower one of two attempts is still writing then never gets into the table, however long it
stood still: a second base file of one instant in a file group is more than some readers bear.
"""

from __future__ import annotations

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.write_status import FileKind
from tagstream.table.write.markers import create_marker, marker_folder
from tagstream.table.write.write_context import WriteContext

_SUFFIX = ".staged"


def begin_data_file(table: HoodieTable, ctx: WriteContext, partition_path: str, name: str, kind: FileKind) -> str:
    """Announce the file by its marker; returns the name where it is to be written.

    InstantConflictError when the instant is settled already.
    """
    _check_pending(table, ctx, name)
    create_marker(table.storage, ctx.instant, partition_path, name, kind)
    return _staged(ctx, partition_path, name)


def publish_data_file(table: HoodieTable, ctx: WriteContext, partition_path: str, name: str) -> None:
    """Give the whole and durable file its name in the partition; InstantConflictError when the instant is settled."""
    storage = table.storage
    staged = _staged(ctx, partition_path, name)
    _check_pending(table, ctx, name)
    try:
        storage.publish([(staged, join(partition_path, name))])
    except FileNotFoundError:
        raise InstantConflictError(_settled(table, ctx, name)) from None
    storage.delete(staged)


def _staged(ctx: WriteContext, partition_path: str, name: str) -> str:
    return f"{marker_folder(ctx.instant)}/{join(partition_path, name)}{_SUFFIX}"


def _check_pending(table: HoodieTable, ctx: WriteContext, name: str) -> None:
    folder = table.config.timeline_folder
    states = {s: table.storage.exists(f"{folder}/{Instant(ctx.instant, ctx.action, s).file_name()}") for s in State}
    if states[State.COMPLETED] or not states[State.INFLIGHT]:
        raise InstantConflictError(_settled(table, ctx, name))


def _settled(table: HoodieTable, ctx: WriteContext, name: str) -> str:
    return (
        f"instant {ctx.instant} of {table.base_path} was completed or rolled back while {name} was being written: it is the "
        "work of an attempt that came too late, and nothing of it was published"
    )
