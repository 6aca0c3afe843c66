"""What goes into the tag step and what comes out of it: NumPy columns, one entry per record."""

from __future__ import annotations

from dataclasses import dataclass, field
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
class TagBatch:
    """The records of one key group in one batch, in any order.

    `skeys`: bytes, `GLOBAL_KEY + key` or `PARTITIONED_KEY + partition + NUL + key`. `partitions`: str, None where
    flags say so. `ordering`: int64, or objects of bytes for string ordering, or None for a table without an ordering
    field; the value is ignored where `FLAG_NO_ORDERING` is set. `source`, `pos_hi`, `pos_lo`: the position in the
    stream; between records of equal ordering the greater (pos_hi, source, pos_lo) wins (files: modification
    time, path, byte of the line).
    """

    skeys: OBJECTS
    partitions: OBJECTS
    ordering: INT64 | OBJECTS | None
    flags: npt.NDArray[np.uint8]
    source: OBJECTS
    pos_hi: INT64
    pos_lo: INT64

    def __len__(self) -> int:
        return len(self.skeys)


@dataclass(frozen=True)
class TagResult:
    """Located records and the key group's new state.

    `take[i]` is the row of the batch that output row i carries on (-1: a delete of the old location, no row needed).
    `has_ordering[i]` says whether `ordering[i]` is known; a delete without it deletes in natural order. `pointer` is
    the value for Spark's group state (the given one when nothing changed). `delta` is the JSON of the new delta's
    reference for the batch manifest, None when nothing changed.
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

    def __len__(self) -> int:
        return len(self.take)
