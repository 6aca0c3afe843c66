"""Located records, the output of the tag step, and which write task writes which file group.

One write task writes all rows of a file group, so all tag tasks must choose the same write task for it. With few
file groups, a hash alone may give one write task twice as many as another, and the batch waits for that write task. So
the driver assigns write tasks to the file groups that had the most rows in the last batch, and puts them into the
write profile. Other file groups are assigned by hash.
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
from tagstream.state.tag_batch import ImageWanted, Op
from tagstream.streaming.shares import least_loaded
from tagstream.streaming.source.packed import Codes, empty_rows, file_group_codes, pack, split
from tagstream.streaming.source.task_files import TaskFile
from tagstream.table.schema.conform import as_type
from tagstream.table.timeline.commit_metadata import WriteStatus

_GROUPS_A_TASK = 32  # with more file groups per write task, a hash distributes them evenly enough
_MOST_GROUPS = 1024  # a limit, because each task reads the profile

Places = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class WriteTasks:
    """``count`` write tasks. ``places``: the write task of some file groups, by partition path and file id."""

    count: int
    places: Places = field(default_factory=dict)

    def of(self, parts: Any, files: Any) -> Codes:
        """Lane 0..count-1 of each row, by the partition path and file id of its file group."""
        code, names = file_group_codes(parts, files)
        write_task = [self._write_task(part, file_id) for part, file_id in names]  # a step a file group
        return np.array(write_task, np.int64)[code] if names else code

    def _write_task(self, part: str, file_id: str) -> int:
        known = self.places.get(part, {}).get(file_id)
        if known is not None and known < self.count:
            return known
        return zlib.crc32(f"{part}\0{file_id}".encode()) % self.count


def work_of(statuses: Iterable[WriteStatus]) -> dict[tuple[str, str], int]:
    """Rows that a batch wrote and deleted, by partition path and file id. A base file counts all of its rows, since it
    is rewritten.
    """
    work: dict[tuple[str, str], int] = {}
    for status in statuses:
        stat = status.stat
        place = (stat.partition_path, stat.file_id)
        work[place] = work.get(place, 0) + stat.num_writes + stat.num_deletes
    return work


def shared_out(work: Mapping[tuple[str, str], int], write_tasks: int) -> dict[str, dict[str, int]]:
    """Assign write tasks to the file groups with the most rows (``WriteTasks.places``), each to the write task with
    the fewest rows so far.
    """
    most = sorted(work, key=lambda place: (-work[place], place))[: min(_GROUPS_A_TASK * write_tasks, _MOST_GROUPS)]
    places: dict[str, dict[str, int]] = {}
    for (part, file_id), write_task in zip(
        most, least_loaded((max(1, work[place]) for place in most), write_tasks), strict=True
    ):
        places.setdefault(part, {})[file_id] = write_task
    return places


OP_BAD = Op.BAD.value
OP_DELETE_NATURAL = Op.DELETE_NATURAL.value
OP_IMAGE = Op.IMAGE.value
OP_CHANGED_KEY = Op.CHANGED_KEY.value
OP_MEND = Op.MEND.value
# In the counts of a key group: the texts of bootstrap.deleted_keys and of batch.added_keys.
DELETED_KEYS, ADDED_KEYS = "deleted_keys", "added_keys"
OPEN = "open"  # the note of an image: older events of its key may still come
DELETED = "open, deleted"  # the same, and the key has a known delete: the row before that delete may be the right one

# ``write_task``: number of the write task; ``rows``: packed ``located_schema``; ``status``: a key group's counts and delta
LOCATED_SQL = "lane int, rows binary, status string"


def located_schema(ordering: OrderingKind, row: pa.DataType, *, may_lack: bool = False) -> pa.Schema:
    """Columns of located records. ``row``: the struct type of the record's fields.

    - ``dest_part, dest_file``: partition path and file id of the file group
    - ``op``: an operation of ``state.tag_batch`` or one of the above
    - ``skey``: the state's key; for a bad record the message key
    - ``ord``: encoded ordering value
    - ``row``: the values; null for deletes and bad records
    - ``value``: the bytes of a bad record
    - ``note``: position and reason of a bad record, or that a delete belongs to a move

    With ``may_lack`` also these columns:

    - ``absent``: the columns that an upsert still lacks (``decode.columns``)
    - ``from_key, from_part, from_file``: the state's key of the row that has these values, and its file group where known
    - ``image``: name of an image (``image_name``)
    - ``from_image``: name of the image of ``from_key`` that has the values
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
    """Name of an image among the images of its key: a key may change several times in a batch."""
    return order_name(wanted.before) if wanted.at is None else b"at %d %d" % wanted.at


def order_name(before: int | bytes | None) -> bytes:
    """Name of the image of a row before an ordering value. ``before`` None: the newest image."""
    return b"" if before is None else b"before " + (before if isinstance(before, bytes) else b"%d" % before)


def located_table(schema: pa.Schema, length: int, columns: dict[str, Any]) -> pa.Table:
    """A table of ``schema`` from the given columns. The other columns are null."""
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
    """Keyed records that are bad, as located records for the quarantine."""
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
    """The status of a key group for the driver, as JSON."""
    return json.dumps({"group": label, "delta": delta, "stats": counts})


def by_write_task(rows: pa.Table, write_tasks: WriteTasks, file: TaskFile | None = None) -> Iterator[tuple[int, bytes]]:
    """(write task, packed rows) of located records. ``file``: where the rows stay, see ``pack``."""
    code = write_tasks.of(rows.column("dest_part"), rows.column("dest_file"))
    for write_task, mine in split(rows, code):
        for packed in pack(mine, file):
            yield write_task, packed


def packed_columns(
    label: int,
    rows: pa.Table,
    delta: str | None,
    counts: dict[str, Any],
    write_tasks: WriteTasks,
    file: TaskFile | None = None,
) -> tuple[list[int], list[bytes | None], list[str | None]]:
    """The columns of ``LOCATED_SQL``: a key group's located records by write task, and after them its status.

    Images go to every write task: this key group does not know which write task has the record that needs them. ``file``:
    where the rows stay, see ``pack``.
    """
    packed: list[tuple[int, bytes | None]] = []
    is_image = rows.column("op").to_numpy() == OP_IMAGE
    if is_image.any():
        images, rows = list(pack(rows.filter(pa.array(is_image)), file)), rows.filter(pa.array(~is_image))
        packed += [(write_task, value) for write_task in range(write_tasks.count) for value in images]
    for write_task, value in by_write_task(rows, write_tasks, file):
        packed += [(write_task, value), *[(write_task, None)] * empty_rows(value)]
    return (
        [*(write_task for write_task, _ in packed), label % write_tasks.count],
        [*(value for _, value in packed), None],
        [*[None] * len(packed), status_text(label, delta, counts)],
    )
