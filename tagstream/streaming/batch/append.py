"""The operation INSERT in the tasks: each record of a key group becomes a new row, and no key is looked up.

A record's file group follows from the write profile and the record's place in the order of keys and positions. So a task
that runs again chooses the same one, also for records with equal keys. Deletes have no effect, as in Hudi.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.decide import choose_winners, distinct_keys
from tagstream.state.layout import OrderingKind
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_PARTITION, OP_INSERT
from tagstream.state.tag_group import empty_stats
from tagstream.streaming.batch.completed import without_lacking
from tagstream.streaming.batch.located import bad_records, located_schema, located_table
from tagstream.streaming.batch.pull_tag import nothing_known
from tagstream.streaming.batch.tag import sorted_out, tag_batch
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_IMAGE, FLAG_SKIPPED, FLAG_TRUNCATE
from tagstream.table import chunks
from tagstream.table.write.write_context import INT32, WriteProfile, assign

_NO_PARTITION = (
    "it has no partition path: an operation that looks up no key (hoodie.datasource.write.operation) needs one"
)
# Records with equal keys are ordered by their position in the source, which no other record has.
_ORDER = [(name, "ascending") for name in ("skey", "src", "pos_hi", "pos_lo")]


def appendable(rows: pa.Table) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """Split keyed records into those to write and bad ones, both in the given order; with the counts of a key group.

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
    counts = empty_stats() | {
        "records": good.num_rows + int(deletes.sum()),
        "inserts": good.num_rows,
        "unknown_deletes": int(deletes.sum()),
        "skipped": skipped,
    }
    return good, bad, counts


def tag_appended(
    label: int, rows: pa.Table, profile: WriteProfile, ordering: OrderingKind, *, keeps_duplicates: bool = True
) -> tuple[pa.Table, dict[str, int]]:
    """Locate the keyed records of one key group. Returns its located records, the bad ones included, and its counts.

    ``keeps_duplicates`` False: of several records of a key in one existing file only the last is written, as by Hudi.
    """
    good, bad, counts = appendable(rows)
    schema = located_schema(ordering, rows.schema.field("row").type)
    out = bad_records(label, bad, schema)
    if not good.num_rows:
        return out, counts
    order = pc.sort_indices(good.select([name for name, _ in _ORDER]), sort_keys=_ORDER)
    good = chunks.take(good, order.to_numpy())
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
    located = located_table(schema, good.num_rows, columns)
    if not keeps_duplicates:
        located = located.filter(_last_in_small_files(good, slots, places, profile))
        counts |= {"inserts": located.num_rows, "superseded": good.num_rows - located.num_rows}
    return pa.concat_tables([located, out]), counts


def _last_in_small_files(
    good: pa.Table, slots: INT32, places: list[tuple[str, str]], profile: WriteProfile
) -> pa.Array:
    """Mask of the records that no later one of their key follows in the same small file. ``good``: in key order."""
    small = profile.small_files_of({path for path, _ in places})
    ids = {(path, file.file_id) for path, files in small.items() for file in files}
    is_small = np.array([place in ids for place in places], np.bool_)[slots]
    codes = pc.dictionary_encode(good.column("skey")).combine_chunks().indices.to_numpy().astype(np.int64)
    both = codes * len(places) + slots
    last = np.zeros(len(both), np.bool_)
    last[len(both) - 1 - np.unique(both[::-1], return_index=True)[1]] = True
    return pa.array(last | ~is_small)


def newest_of_each_key(rows: pa.Table, ordering: OrderingKind) -> pa.Table:
    """The keyed records of one key group without those that lose to a newer one of their key, in key order.

    Bad and skipped records are kept, after the others.
    """
    flags = rows.column("flags").to_numpy()
    aside = pa.array((flags & (FLAG_BAD | FLAG_SKIPPED | FLAG_IMAGE | FLAG_TRUNCATE)) != 0)
    good, rest = rows.filter(pc.invert(aside)), rows.filter(aside)
    if not good.num_rows:
        return rest
    batch = tag_batch(good.drop_columns(["absent"]) if "absent" in good.column_names else good, ordering)
    keys = distinct_keys(batch)
    winners = choose_winners(batch, keys, nothing_known(len(keys), ordering))
    return pa.concat_tables([chunks.take(good, winners.row), rest])


def one_place_each(written: pa.Table, *, by_partition: bool) -> pa.Table:
    """The written rows with one row for each key, the last one: a record index has one place of a key.

    ``written``: columns of ``index.base.WRITTEN_SCHEMA``. ``by_partition``: a key has a place in each partition.
    """
    names = ["partition_path", "record_key"] if by_partition else ["record_key"]
    rows = written.append_column("row", pa.array(np.arange(written.num_rows)))
    last = rows.group_by(names, use_threads=False).aggregate([("row", "max")]).column("row_max")
    return written if len(last) == written.num_rows else written.take(last.combine_chunks().sort())


def _placeless(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("reason")
    return rows.set_column(place, "reason", pa.repeat(pa.scalar(_NO_PARTITION, pa.string()), rows.num_rows))
