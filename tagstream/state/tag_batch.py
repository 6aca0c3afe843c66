"""What goes into the tag step and what comes out of it: NumPy columns, one entry per record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

OBJECTS = npt.NDArray[np.object_]
INT64 = npt.NDArray[np.int64]

FLAG_DELETE = 1
FLAG_NO_ORDERING = 2
FLAG_NO_PARTITION = 4

OP_INSERT = 0
OP_UPDATE = 1
OP_DELETE = 2

GLOBAL_KEY = b"\x01"
PARTITIONED_KEY = b"\x02"


@dataclass(frozen=True)
class PartialRows:
    """Records may lack any column of their row: a row that is new takes then what the record itself has there.

    `needed`: by column, whether a new row cannot do without (such a record is refused). `place`: the column that says the
    partition, -1 where there is none: a record that lacks it leaves the row where it is.
    """

    needed: npt.NDArray[np.bool_]
    place: int = -1


@dataclass(frozen=True)
class ImageWanted:
    """The row of a key as it was before the event of ordering value `before` (None: unknown) took it away.

    `left`: asked by that event itself, a delete, for a record of a later batch. `mended_by`: not the row itself is asked
    for but where it is now, so that it can be mended by the row of this other key, which it took values from too early.
    `at`: the position (`pos_hi`, `pos_lo`) of the event, where that is a delete of the key itself: then it is the row before
    that event, whatever ordering values say.
    """

    skey: bytes
    before: int | bytes | None
    left: bool = False
    mended_by: bytes | None = None
    at: tuple[int, int] | None = None


@dataclass(frozen=True)
class Completion:
    """Where the values are that some records of a batch lack. Rows are numbers of the batch.

    `rows`: the records; `donor` (rows x columns): the row that has the value, -1: the held row. `held`: -1 the key's own row
    in the table, which is at `places`; -2 no held row is needed; else the held row is that of the old key of this row.
    `asked`: whose rows were asked for: `image_rows` is -1 where the batch has none, `image_held` -3 where nothing has.
    `image_open`: whether events of the key may still come that were before the one that took its row away. `image_deleted`:
    a delete of the key is known, which may be that one: where deletes have no ordering value, theirs is that of the row.
    `image_orders`: the ordering values of these rows, None where they are not known.
    """

    rows: INT64
    donor: npt.NDArray[np.int64]
    held: INT64
    places: list[tuple[str, str] | None]
    asked: Sequence[ImageWanted]
    image_rows: INT64
    image_donor: npt.NDArray[np.int64]
    image_held: INT64
    image_places: list[tuple[str, str] | None]
    image_open: npt.NDArray[np.bool_]
    image_deleted: npt.NDArray[np.bool_]
    image_orders: list[int | bytes | None]


@dataclass(frozen=True)
class TagBatch:
    """The records of one key group in one batch, in any order.

    `skeys`: bytes, `GLOBAL_KEY + key` or `PARTITIONED_KEY + partition + NUL + key`. `partitions`: str, None where
    flags say so. `ordering`: int64, or objects of bytes for string ordering, or None for a table without an ordering
    field; the value is ignored where `FLAG_NO_ORDERING` is set. `source`, `pos_hi`, `pos_lo`: the position in the
    stream; between records of equal ordering the greater (pos_hi, source, pos_lo) wins (files: modification
    time, path, byte of the line).

    `absent` (records x columns of the row): values that were not sent, which the row keeps; `elsewhere`: the record's are in
    the row of another key, whose own key group is asked for it by `images`. None: all records hold all of their row.
    `partial`: None: a value that was not sent and that no row has makes its record bad.
    `emptied`: the newest event that emptied the whole table: its ordering value, source, `pos_hi`, `pos_lo`.
    """

    skeys: OBJECTS
    partitions: OBJECTS
    ordering: INT64 | OBJECTS | None
    flags: npt.NDArray[np.uint8]
    source: OBJECTS
    pos_hi: INT64
    pos_lo: INT64
    absent: npt.NDArray[np.bool_] | None = None
    elsewhere: npt.NDArray[np.bool_] | None = None
    images: Sequence[ImageWanted] = ()
    partial: PartialRows | None = None
    emptied: tuple[Any, Any, int, int] | None = None

    def __len__(self) -> int:
        return len(self.skeys)

    def only(self, keep: npt.NDArray[np.bool_]) -> TagBatch:
        """The records that the mask has."""
        columns = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("images", "partial", "emptied")
        }
        cut: dict[str, Any] = {name: None if column is None else column[keep] for name, column in columns.items()}
        return replace(self, **cut)


@dataclass(frozen=True)
class TagResult:
    """Located records and the key group's new state.

    `take[i]` is the row of the batch that output row i carries on (-1: a delete of the old location, no row needed).
    `has_ordering[i]` says whether `ordering[i]` is known; a delete without it deletes in natural order. `pointer` is
    the value for Spark's group state (the given one when nothing changed). `delta` is the JSON of the new delta's
    reference for the batch manifest, None when nothing changed. `refused`: rows of the batch that lack values which no row
    holds; they were not tagged. `completion`: where the values are that others lack.
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

    def __len__(self) -> int:
        return len(self.take)
