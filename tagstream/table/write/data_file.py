"""Data files are staged by the tasks, and get their names from the driver once it knows which ones the commit has.

They are written below the instant's folder in ``.hoodie/.temp``, where no reader looks, under a name that holds the
attempt's write token. What a task of a killed run or the slower one of two attempts writes, however late, is never given
a name: a second base file of one instant in a file group is more than some readers bear.
"""

from __future__ import annotations

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.write.markers import marker_folder
from tagstream.table.write.pending import check_seen, is_inflight
from tagstream.table.write.write_context import WriteContext

_SUFFIX = ".staged"


def begin_data_file(table: HoodieTable, ctx: WriteContext, partition_path: str, name: str) -> str:
    """The name under which the file is to be staged; InstantConflictError when its instant was rolled back."""
    if not is_inflight(table.storage, table.config.timeline_folder, ctx.instant, ctx.action):
        check_seen(table.storage)
        raise InstantConflictError(
            f"instant {ctx.instant} of {table.base_path} was rolled back before {name} was written: it is the work of an "
            "attempt that came too late, and nothing of it is published"
        )
    return staged_path(ctx.instant, join(partition_path, name))


def staged_path(instant: str, path: str) -> str:
    """Where a data file (path relative to the base path) is until it is published."""
    return f"{marker_folder(instant)}/{path}{_SUFFIX}"


def is_staged(path: str) -> bool:
    """True for the name of a staged data file."""
    return path.endswith(_SUFFIX)
