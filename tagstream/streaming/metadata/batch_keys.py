"""What a batch did to its keys (``index.base.WRITTEN_SCHEMA``): which are gone, and which only left a place."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def deleted_rows(written: pa.Table, *, by_partition: bool = False) -> pa.Table:
    """The rows of keys that a whole batch deleted: not those that it put elsewhere or, ``by_partition``, there again."""
    is_live = pc.is_valid(written["file_id"])
    live, gone = written.filter(is_live), written.filter(pc.invert(is_live))
    stays = pc.is_in(_names(gone, by_partition), value_set=_names(live, by_partition))
    return gone.filter(pc.invert(stays))


def without_moves(written: pa.Table) -> pa.Table:
    """A batch's rows without the places that moves leave: a key that moved comes once, with its new place."""
    return pa.concat_tables([written.filter(pc.is_valid(written["file_id"])), deleted_rows(written)])


def _names(rows: pa.Table, by_partition: bool) -> pa.Array:
    keys = rows["record_key"].combine_chunks()
    if not by_partition:
        return keys
    # No partition path has a control character, so the two parts cannot run into each other.
    return pc.binary_join_element_wise(rows["partition_path"].combine_chunks(), keys, "\0")
