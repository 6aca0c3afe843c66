"""What the merge of a slice works on: the records of one log block, and the winners among those of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LogBatch:
    """The records or deletes of one block. ``orderings`` None: the table has no ordering field.

    ``rows`` is None for a delete block; ``deleted`` marks deletes (also rows that say so of themselves), ``natural``
    those without an ordering value. ``holes``: by column, the rows that do not say its value (a partial update) and take
    it from what was there before.
    """

    keys: pa.Array
    rows: pa.Table | None
    orderings: pa.Array | None
    deleted: Bools
    natural: Bools
    holes: Mapping[str, Bools] = field(default_factory=dict)


@dataclass(frozen=True)
class MergedLog:
    """The winner of each key of a slice's logs, aligned arrays: ``row`` is an index into ``rows``, -1 for a delete.

    ``unconditional``: wins over the base file whatever its ordering value. ``orderings`` are None where they decide
    nothing; ``winner_orderings`` are the winners' own values wherever the blocks carry them. ``holes``: by column, the
    ``rows`` whose value is that of the base file's row.
    """

    keys: pa.Array
    rows: pa.Table | None
    row: _Ints
    orderings: pa.Array | None
    unconditional: Bools
    winner_orderings: pa.Array | None = None
    holes: Mapping[str, Bools] = field(default_factory=dict)
