"""The operation INSERT in the tasks: each record of a key group becomes a new row, and no key is looked up.

A record's file group follows from the write profile and the record's place in the order of keys and positions. So a task
that runs again chooses the same one, also for records with equal keys. Deletes have no effect, as in Hudi.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.layout import OrderingKind
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_PARTITION, OP_INSERT
from tagstream.state.tag_group import empty_stats
from tagstream.streaming.batch.completed import without_lacking
from tagstream.streaming.batch.located import bad_records, located_schema, located_table
from tagstream.streaming.batch.tag import sorted_out
from tagstream.table import chunks
from tagstream.table.write.write_context import WriteProfile, assign

_NO_PARTITION = (
    "it has no partition path: an operation that looks up no key (hoodie.datasource.write.operation) needs one"
)
# Records with equal keys are ordered by their position in the source, which no other record has.
_ORDER = [(name, "ascending") for name in ("skey", "src", "pos_hi", "pos_lo")]


def appendable(rows: pa.Table) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """Split keyed records into those to write, in a fixed order, and bad ones; with the counts of a key group.

    ``rows``: columns of ``KeyDecoder.keys``.
    """
    good, bad, skipped = sorted_out(rows)
    good, lacking = without_lacking(good)
    flags = good.column("flags").to_numpy()
    deletes = (flags & FLAG_DELETE) != 0
    placeless = ((flags & FLAG_NO_PARTITION) != 0) & ~deletes
    if placeless.any():
        lacking = pa.concat_tables([lacking, _placeless(good.filter(pa.array(placeless)))], promote_options="default")
    bad = pa.concat_tables([bad, lacking], promote_options="default")
    if (deletes | placeless).any():
        good = good.filter(pa.array(~(deletes | placeless)))
    good = chunks.take(good, pc.sort_indices(good.select([name for name, _ in _ORDER]), sort_keys=_ORDER).to_numpy())
    counts = empty_stats() | {
        "records": good.num_rows + int(deletes.sum()),
        "inserts": good.num_rows,
        "unknown_deletes": int(deletes.sum()),
        "skipped": skipped,
    }
    return good, bad, counts


def tag_appended(
    label: int, rows: pa.Table, profile: WriteProfile, ordering: OrderingKind
) -> tuple[pa.Table, dict[str, int]]:
    """Locate the keyed records of one key group. Returns its located records, the bad ones included, and its counts."""
    good, bad, counts = appendable(rows)
    schema = located_schema(ordering, rows.schema.field("row").type)
    out = bad_records(label, bad, schema)
    if not good.num_rows:
        return out, counts
    parts = pc.dictionary_encode(good.column("part")).combine_chunks()
    codes = parts.indices.to_numpy().astype(np.int32)
    slots, places = assign(codes, parts.dictionary.to_pylist(), profile.group_index(label), profile)
    at = pa.array(slots)
    columns = {
        "dest_part": pa.array([part for part, _ in places], pa.string()).take(at),
        "dest_file": pa.array([file_id for _, file_id in places], pa.string()).take(at),
        "op": pa.array(np.full(good.num_rows, OP_INSERT, np.int8)),
        "skey": good.column("skey"),
        "ord": good.column("ord"),
        "row": good.column("row"),
    }
    return pa.concat_tables([located_table(schema, good.num_rows, columns), out]), counts


def _placeless(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("reason")
    return rows.set_column(place, "reason", pa.repeat(pa.scalar(_NO_PARTITION, pa.string()), rows.num_rows))
