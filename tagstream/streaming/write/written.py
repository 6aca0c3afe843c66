"""What the write tasks tell an index that keeps places of its own: record key -> where it is now."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.index.base import WRITTEN_SCHEMA, HoodieIndex
from tagstream.state.tag_batch import OP_DELETE, OP_INSERT, OP_UPDATE
from tagstream.streaming.tag.located import OP_DELETE_NATURAL
from tagstream.streaming.tag.pull_tag import MOVED

Told = Literal["nothing", "deleted", "places", "all"]


def told(index: HoodieIndex | None, *, wants_places: bool) -> Told:
    """What the driver needs of it: all, for an index of its own; the deleted keys, where tasks update a remote one.

    ``wants_places``: the metadata table has a record index, which is told of new, moved and deleted keys.
    """
    if index is None or index.is_implicit_with_storage:
        return "places" if wants_places else "nothing"
    if not index.update_in_tasks:
        return "all"
    return "places" if wants_places else "deleted"


def written_rows(rows: pa.Table, keys: pa.Array, *, with_moves: bool = False) -> pa.Table:
    """``index.base.WRITTEN_SCHEMA`` of a task's located rows; ``keys`` are their record keys.

    The delete that a move leaves at the old place is left out, unless ``with_moves``: the key comes with its new place from
    another task.
    """
    op = rows.column("op").to_numpy()
    gone = (op == OP_DELETE) | (op == OP_DELETE_NATURAL)
    if not with_moves:
        gone &= ~pc.equal(rows.column("note"), MOVED).fill_null(False).to_numpy()
    kept = (op == OP_INSERT) | (op == OP_UPDATE)
    chosen = np.flatnonzero(kept | gone)
    part, file_id = (rows.column(name).combine_chunks().take(pa.array(chosen)) for name in ("dest_part", "dest_file"))
    none = pa.scalar(None, pa.string())
    live = pa.array(kept[chosen])
    columns = [
        keys.take(pa.array(chosen)),
        part,
        pc.if_else(live, file_id, none),
        pa.array(op[chosen] == OP_INSERT),
    ]
    return pa.Table.from_arrays(columns, schema=WRITTEN_SCHEMA)


def pack_rows(rows: pa.Table) -> str:
    """Arrow's own stream, compressed, as text."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def unpack_rows(texts: Iterable[str]) -> pa.Table:
    """All rows that the tasks packed."""
    tables = [pa.ipc.open_stream(base64.b64decode(text)).read_all() for text in texts]
    return pa.concat_tables([WRITTEN_SCHEMA.empty_table(), *tables])
