"""The input and the output of the tag step: NumPy columns, one entry per record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

OBJECTS = npt.NDArray[np.object_]
INT64 = npt.NDArray[np.int64]


class Flag(IntFlag):
    """Bits of the column ``flags`` of records on their way to the write step. The tag step knows the first three."""

    DELETE = 1
    NO_ORDERING = 2
    NO_PARTITION = 4
    BAD = 8
    SKIPPED = 16  # not a change of a row: only counted in the tag step
    IMAGE = 32  # not a record: a request for its key's row before the ordering value
    TRUNCATE = 64  # rows before the ordering value are deleted; sent to all key groups, not a row itself


class Op(IntEnum):
    """What the write step does with a located record: the column ``op``. The tag step gives the first three."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    BAD = 4
    DELETE_NATURAL = 5  # a delete whose ordering value is not known
    IMAGE = 6  # nothing to write: a row as it was, for a record of another key that lacks values of it
    CHANGED_KEY = 7  # nothing to write: a deleted row as it was, kept for a record of another key in a later batch
    MEND = 8  # a row that may have taken values from another key's row too early; ``from_key`` is that key


# Plain numbers of these: an array that meets a member of an enum becomes one of 64-bit numbers.
FLAG_DELETE = Flag.DELETE.value
FLAG_NO_ORDERING = Flag.NO_ORDERING.value
FLAG_NO_PARTITION = Flag.NO_PARTITION.value
OP_INSERT = Op.INSERT.value
OP_UPDATE = Op.UPDATE.value
OP_DELETE = Op.DELETE.value

GLOBAL_KEY = b"\x01"
PARTITIONED_KEY = b"\x02"


@dataclass(frozen=True)
class PartialRows:
    """Records may lack any column of their row. A new row then takes the value that the record itself has there.

    `needed`: per column, whether a new row must have it (a record without it is refused). `place`: the column with the
    partition path, -1 for none; a record that lacks it leaves the row in its partition.
    """

    needed: npt.NDArray[np.bool_]
    place: int = -1


@dataclass(frozen=True)
class ImageWanted:
    """A request for the row of a key as it was before an event removed it.

    `before`: the ordering value of the event, None: unknown. `deleted`: the request comes from the event itself, a delete,
    for a record of a later batch. `mended_by`: the request is not for the row but for its location now. The row took
    values too early, and the row of this other key corrects it. `at`: the position (`pos_hi`, `pos_lo`) of the event when
    it is a delete of the key itself. The row is then the one before that event, whatever the ordering values are.
    """

    skey: bytes
    before: int | bytes | None
    deleted: bool = False
    mended_by: bytes | None = None
    at: tuple[int, int] | None = None


@dataclass(frozen=True)
class Completion:
    """Where the values are that some records of a batch lack. Rows are numbers of the batch.

    `rows`: the records. `donor` (rows x columns): the row of the batch that has the value, -1: the stored row.
    `stored_row`: which row in the table is the stored row. -1: the key's own row, at `places`; -2: no stored row is
    needed; else the number of a row: the stored row is that of this row's old key.
    `asked`: the requests for rows. For each, `image_rows` is -1 where the batch has no such row, `image_stored_row` is
    -3 where no row exists. `image_open`: whether events of the key may still come that were before the one that
    removed its row. `image_deleted`: whether a delete of the key is known, which may be that event: deletes without an
    ordering value have that of their row. `image_orders`: the ordering values of these rows, None where unknown.
    """

    rows: INT64
    donor: npt.NDArray[np.int64]
    stored_row: INT64
    places: list[tuple[str, str] | None]
    asked: Sequence[ImageWanted]
    image_rows: INT64
    image_donor: npt.NDArray[np.int64]
    image_stored_row: INT64
    image_places: list[tuple[str, str] | None]
    image_open: npt.NDArray[np.bool_]
    image_deleted: npt.NDArray[np.bool_]
    image_orders: list[int | bytes | None]


@dataclass(frozen=True)
class TagBatch:
    """The records of one key group in one batch, in any order.

    `skeys`: bytes, `GLOBAL_KEY + key` or `PARTITIONED_KEY + partition + NUL + key`. `partitions`: str, None where
    the flags have FLAG_NO_PARTITION. `ordering`: int64, or objects of bytes for string ordering, or None for a table
    without an ordering field; the value is ignored where `FLAG_NO_ORDERING` is set. `source`, `pos_hi`, `pos_lo`: the
    position in the stream. Among records of equal ordering the greatest (pos_hi, source, pos_lo) wins (for files:
    modification time, path, byte of the line).

    `absent` (records x columns of the row): values that were not sent, so that the row keeps its own. `in_other_row`: the
    values of the record are in the row of another key, and `images` asks the key group of that key for them. None: every
    record has all values. `partial` None: a record is refused when it lacks a value that no row has.
    `truncates`: the newest TRUNCATE of the whole source table: its ordering value, source, `pos_hi`, `pos_lo`.
    """

    skeys: OBJECTS
    partitions: OBJECTS
    ordering: INT64 | OBJECTS | None
    flags: npt.NDArray[np.uint8]
    source: OBJECTS
    pos_hi: INT64
    pos_lo: INT64
    absent: npt.NDArray[np.bool_] | None = None
    in_other_row: npt.NDArray[np.bool_] | None = None
    images: Sequence[ImageWanted] = ()
    partial: PartialRows | None = None
    truncates: tuple[Any, Any, int, int] | None = None

    def __len__(self) -> int:
        return len(self.skeys)

    def only(self, keep: npt.NDArray[np.bool_]) -> TagBatch:
        """The records where the mask is True."""
        columns = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("images", "partial", "truncates")
        }
        cut: dict[str, Any] = {name: None if column is None else column[keep] for name, column in columns.items()}
        return replace(self, **cut)


@dataclass(frozen=True)
class TagResult:
    """Located records and the key group's new state.

    `take[i]`: the row of the batch that output row i writes (-1: a delete at the old location, which needs no row).
    `has_ordering[i]`: whether `ordering[i]` is known; a delete without it deletes in commit order. `pointer`: the value
    for Spark's group state (unchanged when nothing changed). `delta`: JSON of the new delta's reference for the batch
    manifest, None when nothing changed. `refused`: rows of the batch that lack values which no row has; they were not
    tagged. `completion`: where the values are that other records lack. `buried`: keys that the batch deletes, also those
    without a row, and their ordering values, where other streams must know them. `added`: keys that the table did not
    have at their place, where other streams must know them.
    """

    take: INT64
    skey: OBJECTS
    partition: OBJECTS
    file_id: OBJECTS
    op: npt.NDArray[np.int8]
    ordering: INT64 | OBJECTS
    has_ordering: npt.NDArray[np.bool_]
    pointer: bytes | None
    delta: str | None
    stats: dict[str, Any] = field(default_factory=dict)
    refused: INT64 = field(default_factory=lambda: np.zeros(0, np.int64))
    completion: Completion | None = None
    buried: tuple[OBJECTS, INT64 | OBJECTS] | None = None
    added: OBJECTS | None = None

    def __len__(self) -> int:
        return len(self.take)
