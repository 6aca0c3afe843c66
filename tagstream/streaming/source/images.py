"""Questions for rows of other keys, which go with the records to those keys' groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, FLAG_NO_PARTITION
from tagstream.streaming.source.decode.key_decoder import FLAG_IMAGE


def with_images(keyed: pa.Table) -> pa.Table:
    """Behind the records a question for each row of another key that one lacks values of: it goes to that key's group.

    A delete whose key changed asks for its own row, for the new key's record may come in a later batch (``FLAG_DELETE``);
    and where that came in an earlier one, which could not know all of the old key's events, the row of the new key is to be
    mended (``FLAG_NO_PARTITION``) by the old key's, which is asked for once more.
    """
    if "old" not in keyed.column_names:
        return keyed
    parts = [keyed]
    asks = keyed.filter(keyed.column("old").is_valid())
    if asks.num_rows:
        parts.append(_asks(asks, asks.column("old"), FLAG_NO_ORDERING | FLAG_DELETE))
    moved = keyed.filter(keyed.column("new").is_valid())
    if moved.num_rows:
        parts.append(_asks(moved, moved.column("skey"), FLAG_NO_ORDERING, old=moved.column("skey")))
        parts.append(
            _asks(moved, moved.column("new"), 0, FLAG_NO_ORDERING | FLAG_NO_PARTITION, old=moved.column("skey"))
        )
    return pa.concat_tables(parts)


def _asks(
    of: pa.Table, keys: pa.ChunkedArray, keep: int, more: int = 0, old: pa.ChunkedArray | None = None
) -> pa.Table:
    """A question for the row of each of ``keys``; ``keep``: flags of the records that it has too, ``more``: others."""
    flags = (of.column("flags").to_numpy() & keep) | more | FLAG_IMAGE
    given = {"skey": keys, "ord": of.column("ord"), "flags": pa.array(flags.astype(np.int8))}
    given |= {name: of.column(name) for name in ("pos_hi", "pos_lo")}
    given |= {} if old is None else {"old": old}
    columns = [given.get(f.name, pa.nulls(of.num_rows, f.type)) for f in of.schema]
    return pa.Table.from_arrays(columns, schema=of.schema)
