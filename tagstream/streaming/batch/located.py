"""Located records: what the tag step hands to the write step, and which write task each file group's rows go to.

A file group is written by one task, its lane, whichever tasks its rows come from. So all tasks must know the same
lane. With a handful of file groups a hash alone puts twice as many into one lane as into another, and the batch
waits for it. So the driver distributes the groups that had most work in the batch before, and pins that in the
write profile; the other groups are hashed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tagstream.state.layout import OrderingKind, has_bytes
from tagstream.state.tag_batch import ImageWanted
from tagstream.streaming.shares import least_loaded
from tagstream.streaming.source.packed import Codes, empty_rows, file_group_codes, pack, split
from tagstream.table.schema.conform import as_type
from tagstream.table.timeline.commit_metadata import WriteStatus

_GROUPS_A_LANE = 32  # of so many and more a hash is even enough
_MOST_GROUPS = 1024  # each task reads the profile

Places = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Lanes:
    """``count`` write tasks; ``places``: the lane of some file groups, by partition path and file id."""

    count: int
    places: Places = field(default_factory=dict)

    def of(self, parts: Any, files: Any) -> Codes:
        """Lane 0..count-1 of each row, by its file group's partition path and file id."""
        code, names = file_group_codes(parts, files)
        lane = [self._lane(part, file_id) for part, file_id in names]  # a step a file group
        return np.array(lane, np.int64)[code] if names else code

    def _lane(self, part: str, file_id: str) -> int:
        known = self.places.get(part, {}).get(file_id)
        if known is not None and known < self.count:
            return known
        return zlib.crc32(f"{part}\0{file_id}".encode()) % self.count


def work_of(statuses: Iterable[WriteStatus]) -> dict[tuple[str, str], int]:
    """Rows that a batch wrote and deleted, by partition path and file id; of a base file all that were written anew."""
    work: dict[tuple[str, str], int] = {}
    for status in statuses:
        stat = status.stat
        place = (stat.partition_path, stat.file_id)
        work[place] = work.get(place, 0) + stat.num_writes + stat.num_deletes
    return work


def shared_out(work: Mapping[tuple[str, str], int], lanes: int) -> dict[str, dict[str, int]]:
    """The lanes of the file groups with most work (``Lanes.places``), each in turn where the least was yet."""
    most = sorted(work, key=lambda place: (-work[place], place))[: min(_GROUPS_A_LANE * lanes, _MOST_GROUPS)]
    places: dict[str, dict[str, int]] = {}
    for (part, file_id), lane in zip(most, least_loaded((max(1, work[place]) for place in most), lanes), strict=True):
        places.setdefault(part, {})[file_id] = lane
    return places


OP_BAD = 4
OP_DELETE_NATURAL = 5  # a delete whose ordering value is not known
OP_MEND = 8  # nothing new: a row that may have taken values from another key's row too early; ``from_key`` is that key
OP_LEFT = 7  # nothing to write: a deleted row as it was, kept for a record of another key in a later batch
OP_IMAGE = 6  # nothing to write: a row as it was, for a record of another key that lacks values of it
OPEN = "open"  # the note of an image: events of its key that were before it may come yet
DELETED = "open, deleted"  # the same, and a delete of the key is known: the row from before it may be the one

# ``lane``: which write task; ``rows``: a packed table of ``located_schema``; ``status``: a key group's counts and delta
LOCATED_SQL = "lane int, rows binary, status string"


def located_schema(ordering: OrderingKind, row: pa.DataType, *, may_lack: bool = False) -> pa.Schema:
    """Columns of located records; ``row`` is the struct of the record's fields.

    ``dest_part, dest_file``: the file group; ``op``: one of ``state.tag_batch``'s or of the above; ``skey``: the state's key
    (the message key of a bad record); ``ord``: encoded ordering value; ``row``: null for deletes and bad records;
    ``value``: bytes of a bad record; ``note``: place and reason of a bad record, or that a delete is a move's. With
    ``may_lack``, of upserts: ``absent``: the columns that the row still lacks (``decode.columns``); ``from_key, from_part,
    from_file``: the state's key of the row that holds them, and its file group where that is known; ``from_image``: which
    image of that key (``image_name``), as images have it in ``image``.
    """
    more = [
        *(("absent", pa.binary()), ("from_key", pa.binary()), ("from_part", pa.string()), ("from_file", pa.string())),
        *(("image", pa.binary()), ("from_image", pa.binary())),
    ]
    return pa.schema(
        [
            ("dest_part", pa.string()),
            ("dest_file", pa.string()),
            ("op", pa.int8()),
            ("skey", pa.binary()),
            ("ord", pa.binary() if has_bytes(ordering) else pa.int64()),
            ("row", row),
            ("value", pa.binary()),
            ("note", pa.string()),
            *(more if may_lack else ()),
        ]
    )


def image_name(wanted: ImageWanted) -> bytes:
    """Tells the images of a key apart: a key may change several times in a batch."""
    return order_name(wanted.before) if wanted.at is None else b"at %d %d" % wanted.at


def order_name(before: int | bytes | None) -> bytes:
    """The name of the image from before an ordering value; ``before`` None: of the newest."""
    return b"" if before is None else b"before " + (before if isinstance(before, bytes) else b"%d" % before)


def located_table(schema: pa.Schema, length: int, columns: dict[str, Any]) -> pa.Table:
    """A table of ``schema`` from the columns that there are; the others are null."""
    return pa.Table.from_arrays(
        [
            as_type(columns[f.name], f.type)
            if f.name in columns
            else pa.nulls(length, f.type)  # no copy for equal types
            for f in schema
        ],
        schema=schema,
    )


def bad_records(label: int, bad: pa.Table, schema: pa.Schema) -> pa.Table:
    """Keyed records that were found bad, on their way to the quarantine."""
    n = bad.num_rows
    names = [name for name in ("src", "pos_hi", "pos_lo", "reason", "headers") if name in bad.column_names]
    places = zip(*(bad.column(name).to_pylist() for name in names), strict=True)
    columns = {
        "dest_part": pa.repeat(pa.scalar(""), n),
        "dest_file": pa.repeat(pa.scalar(f"#{label}"), n),
        "op": pa.array(np.full(n, OP_BAD, np.int8)),
        "skey": bad.column("skey"),
        "value": bad.column("value"),
        # a row loop: bad records are few, and each carries its own text
        "note": pa.array([json.dumps(list(place)) for place in places], pa.string()),
    }
    return located_table(schema, n, columns)


def status_text(label: int, delta: str | None, counts: dict[str, Any]) -> str:
    """What a key group tells the driver."""
    return json.dumps({"group": label, "delta": delta, "stats": counts})


def by_lane(rows: pa.Table, lanes: Lanes) -> Iterator[tuple[int, bytes]]:
    """(lane, packed rows) of located records."""
    code = lanes.of(rows.column("dest_part"), rows.column("dest_file"))
    for lane, mine in split(rows, code):
        for packed in pack(mine):
            yield lane, packed


def packed_columns(
    label: int, rows: pa.Table, delta: str | None, counts: dict[str, Any], lanes: Lanes
) -> tuple[list[int], list[bytes | None], list[str | None]]:
    """The columns of ``LOCATED_SQL``: a key group's located records by lane, and behind them its status.

    Images go to every lane: which one has the record that needs them only its own key group knows.
    """
    packed: list[tuple[int, bytes | None]] = []
    is_image = rows.column("op").to_numpy() == OP_IMAGE
    if is_image.any():
        images, rows = list(pack(rows.filter(pa.array(is_image)))), rows.filter(pa.array(~is_image))
        packed += [(lane, value) for lane in range(lanes.count) for value in images]
    for lane, value in by_lane(rows, lanes):
        packed += [(lane, value), *[(lane, None)] * empty_rows(value)]
    return (
        [*(lane for lane, _ in packed), label % lanes.count],
        [*(value for _, value in packed), None],
        [*[None] * len(packed), status_text(label, delta, counts)],
    )
