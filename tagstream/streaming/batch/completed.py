"""Complete located records that lack values: fill them from other records of the batch, or add the location of the row
that has them.

After a change of key, the new key's record may be read in an earlier batch than the last events of the old key, which
are in another topic partition. The values that it took by then may be old or missing. The old key's delete shows this
later, and then such rows are corrected.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.decide import LOST, OWN
from tagstream.state.layout import OrderingKind
from tagstream.state.tag_batch import (
    FLAG_DELETE,
    FLAG_NO_ORDERING,
    FLAG_NO_PARTITION,
    OP_DELETE,
    Completion,
    ImageWanted,
    PartialRows,
    TagResult,
)
from tagstream.streaming.batch.located import (
    DELETED,
    OP_CHANGED_KEY,
    OP_IMAGE,
    OP_MEND,
    OPEN,
    image_name,
    located_table,
    order_name,
)
from tagstream.streaming.source.decode.columns import absent_bits, unpack_absent
from tagstream.streaming.source.decode.key_decoder import FLAG_IMAGE
from tagstream.table import chunks
from tagstream.table.chunks import flat
from tagstream.table.schema.conform import as_type


def corrections(schema: pa.Schema, good: pa.Table, result: TagResult, done: Completion) -> pa.Table:
    """A located record ``OP_MEND`` for each row that may have to be corrected, at its location after the batch.

    ``from_part``, ``from_file``: the row's location before the batch; null where the batch itself writes the row. Where
    this batch has a record of the new key, nothing is corrected: the record was completed with this batch's values. The
    loop is over rare rows.
    """
    asked = [(i, image) for i, image in enumerate(done.asked) if image.mended_by is not None]
    keys = pa.array([image.skey for _, image in asked], pa.binary())
    here = good.filter(pc.and_(pc.is_in(good.column("skey"), value_set=keys), good.column("old").is_valid()))
    known = set(zip(here.column("skey").to_pylist(), here.column("old").to_pylist(), strict=True))
    upsert = result.op != OP_DELETE
    places: list[tuple[bytes, bytes | None, tuple[str, str], tuple[str, str] | None, bytes]] = []
    for i, image in asked:
        if (image.skey, image.mended_by) in known:
            continue
        mine = result.skey == image.skey
        written, name = np.flatnonzero(upsert & mine), image_name(image)
        own = done.image_places[i] if done.image_stored_row[i] == OWN else None
        if len(written):
            at = int(written[0])
            places.append((image.skey, image.mended_by, (result.partition[at], result.file_id[at]), None, name))
        elif own is not None and not mine.any():  # otherwise the batch deletes the row
            places.append((image.skey, image.mended_by, own, own, name))
    columns = {
        "dest_part": pa.array([to[0] for _, _, to, *_ in places], pa.string()),
        "dest_file": pa.array([to[1] for _, _, to, *_ in places], pa.string()),
        "op": pa.array(np.full(len(places), OP_MEND, np.int8)),
        "skey": pa.array([key for key, *_ in places], pa.binary()),
        "from_key": pa.array([old for _, old, *_ in places], pa.binary()),
        "from_image": pa.array([name for *_, name in places], pa.binary()),
        "from_part": pa.array([None if own is None else own[0] for *_, own, _ in places], pa.string()),
        "from_file": pa.array([None if own is None else own[1] for *_, own, _ in places], pa.string()),
    }
    return located_table(schema, len(places), columns)


Ints = npt.NDArray[np.int64]
_NOWHERE = (
    "it lacks values that the source did not send because they had not changed, and neither the table nor this batch has "
    "the row: take a snapshot of the source's table first"
)


def images_of(records: pa.Table, ordering: OrderingKind) -> list[ImageWanted]:
    """The rows that records of other key groups need."""
    if "old" not in records.column_names:
        return []
    asks = records.filter(pa.array((records.column("flags").to_numpy() & FLAG_IMAGE) != 0))
    ordered = ordering != "none"
    found = []
    for key, order, flags, old, *at in zip(
        *(asks.column(n).to_pylist() for n in ("skey", "ord", "flags", "old", "pos_hi", "pos_lo")), strict=True
    ):
        before = order if ordered and not flags & FLAG_NO_ORDERING else None
        deleted, mended_by = bool(flags & FLAG_DELETE), old if flags & FLAG_NO_PARTITION else None
        event = (at[0], at[1]) if deleted or old is not None else None  # the delete that asks
        found.append(ImageWanted(key, before, deleted, mended_by, event))
    return found


def lacking(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Which values keyed records lack: records x columns."""
    return unpack_absent(rows.column("absent").combine_chunks(), rows.schema.field("row").type.num_fields)


def refused(good: pa.Table, result: TagResult, partial: PartialRows | None = None) -> pa.Table:
    """The records that lack values which no row has, as bad records."""
    rows = chunks.take(good, result.refused) if len(result.refused) else good.slice(0, 0)
    place = rows.schema.get_field_index("reason")
    text = _NOWHERE
    if partial is not None:
        names = [f.name for f, needed in zip(rows.schema.field("row").type, partial.needed, strict=True) if needed]
        text = f"it is the first of its row and lacks a field that may not be null (of {', '.join(names)})"
    return rows.set_column(place, "reason", pa.repeat(pa.scalar(text, pa.string()), rows.num_rows))


def without_lacking(good: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split records into complete ones, without the column ``absent``, and incomplete ones, as bad records.

    Pull-type indexes do not read the existing row.
    """
    if "absent" not in good.column_names:
        return good, good.slice(0, 0)
    short = good.filter(good.column("absent").is_valid())
    text = "it lacks values that the source did not send; only the state index can add them (hoodie.index.type)"
    place = short.schema.get_field_index("reason")
    short = short.set_column(place, "reason", pa.repeat(pa.scalar(text, pa.string()), short.num_rows))
    whole = good.filter(good.column("absent").is_null()) if short.num_rows else good
    return whole.drop_columns(["absent"]), short


def completed(rows: pa.Table, good: pa.Table, result: TagResult) -> pa.Table:
    """Located records with the lacking values that the batch has, and after them the images that other records need.

    A delete's image is stored for later batches: with its values, or with its location where only the table has the
    values.
    """
    done = result.completion
    if done is None:
        return rows
    kind = good.schema.field("row").type
    held = good.column("row").combine_chunks()
    held = held.chunk(0) if isinstance(held, pa.ChunkedArray) else held
    if len(done.rows):
        at = np.full(good.num_rows, -1, np.int64)
        upserts = np.flatnonzero(result.take >= 0)
        at[result.take[upserts]] = upserts
        where = at[done.rows]
        columns = {"row": _filled(held, done.donor, kind)} | _sources(done, good)
        rows = _scattered(rows, where, columns)
    if not done.asked:
        return rows
    deleted = np.array([image.deleted for image in done.asked], np.bool_)
    mended = np.array([image.mended_by is not None for image in done.asked], np.bool_)
    images = _images(rows.schema, held, done, good, deleted)
    images = images.filter(pa.array(~mended & (~deleted | (done.image_stored_row != LOST) | (done.image_rows >= 0))))
    return pa.concat_tables([rows, images, *([corrections(rows.schema, good, result, done)] if mended.any() else [])])


def _sources(done: Completion, good: pa.Table) -> dict[str, pa.Array]:
    """For the records that lack values: what they still lack, and the row that has it."""
    keys = good.column("skey")
    own = done.stored_row == OWN
    other = done.stored_row >= 0
    from_rows = np.where(own, done.rows, np.where(other, done.stored_row, -1))
    mask = pa.array(from_rows, mask=from_rows < 0)
    from_key = pc.if_else(pa.array(own), flat(keys.take(mask)), flat(good.column("old").take(mask)))
    bits = absent_bits(done.donor < 0, np.arange(len(done.rows)), len(done.rows))
    wanted = {"from_key": from_key, "from_image": _of_orders(good, done.stored_row)}
    return {"absent": bits} | wanted | _places(done.places)


def _images(
    schema: pa.Schema, held: pa.StructArray, done: Completion, good: pa.Table, deleted: npt.NDArray[np.bool_]
) -> pa.Table:
    keys = pa.array([image.skey for image in done.asked], pa.binary())
    n = len(keys)
    own, other = done.image_stored_row == OWN, done.image_stored_row >= 0
    take = pa.array(np.where(other, done.image_stored_row, -1), mask=~other)
    from_key = pc.if_else(pa.array(own), keys, flat(good.column("old").take(take)))
    places = [
        p if stored_at == OWN else None
        for p, stored_at in zip(done.image_places, done.image_stored_row.tolist(), strict=True)
    ]
    columns = {
        "dest_part": pa.repeat(pa.scalar(""), n),
        "dest_file": pa.repeat(pa.scalar("#"), n),
        "op": pa.array(np.where(deleted, OP_CHANGED_KEY, OP_IMAGE).astype(np.int8)),
        "note": pc.if_else(
            pa.array(done.image_open),
            pc.if_else(pa.array(done.image_deleted), pa.scalar(DELETED), pa.scalar(OPEN)),
            pa.scalar(None, pa.string()),
        ),
        "skey": keys,
        "ord": pa.array(
            [order if i.deleted else i.before for i, order in zip(done.asked, done.image_orders, strict=True)],
            schema.field("ord").type,
        ),
        "image": pa.array([image_name(image) for image in done.asked], pa.binary()),
        "from_image": _of_orders(good, done.image_stored_row),
        "row": _filled(held, done.image_donor, held.type),
        "absent": absent_bits(done.image_donor < 0, np.arange(n), n),
        "from_key": pc.if_else(pa.array(done.image_stored_row != LOST), from_key, pa.scalar(None, pa.binary())),
    }
    return located_table(schema, n, columns | _places(places))


def _of_orders(good: pa.Table, held: Ints) -> pa.Array:
    """The names of the images that the records at these rows need; null for no row. The loop is over rare rows."""
    there = good.take(pa.array(held[held >= 0]))
    orders = zip(there.column("ord").to_pylist(), there.column("flags").to_pylist(), strict=True)
    names = (order_name(None if flags & FLAG_NO_ORDERING else order) for order, flags in orders)
    return pa.array([next(names) if at >= 0 else None for at in held.tolist()], pa.binary())


def _places(places: list[tuple[str, str] | None]) -> dict[str, pa.Array]:
    return {
        "from_part": pa.array([None if p is None else p[0] for p in places], pa.string()),
        "from_file": pa.array([None if p is None else p[1] for p in places], pa.string()),
    }


def _filled(held: pa.StructArray, donor: Ints, kind: pa.StructType) -> pa.StructArray:
    """Rows whose columns come from the rows that `donor` names; null where it names none."""
    columns = []
    for i, column in enumerate(held.flatten()):
        mine = donor[:, i]
        columns.append(column.take(pa.array(mine, mask=mine < 0)))
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _scattered(rows: pa.Table, where: Ints, columns: dict[str, pa.Array]) -> pa.Table:
    """Rows with these values at these row numbers."""
    order = np.arange(rows.num_rows)
    order[where] = rows.num_rows + np.arange(len(where))
    take = pa.array(order)
    for name, values in columns.items():
        i = rows.schema.get_field_index(name)
        both = pa.chunked_array([*rows.column(i).chunks, as_type(values, rows.schema.field(i).type)])
        rows = rows.set_column(i, rows.schema.field(i), both.take(take))
    return rows
