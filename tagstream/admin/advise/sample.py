"""A sample of a stream: lines of JSON files, decoded as the stream decodes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.admin.errors import AdminError
from tagstream.admin.source_files import files_below, lines_of, raw_lines
from tagstream.state.tag_batch import FLAG_DELETE, TagBatch
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD
from tagstream.streaming.source.decode.state_keys import record_keys
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder

_SHOWN = 10


@dataclass(frozen=True)
class BadLine:
    """A line that the stream would quarantine; ``line`` counts from 1."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class Sample:
    """``rows``: the good records in stream order, columns of ``KeyDecoder.keys`` and ``record_key``.

    ``bad`` counts the others, ``first_bad`` names some. ``more``: there was more than was taken.
    """

    rows: pa.Table
    files: int
    bad: int
    first_bad: tuple[BadLine, ...]
    more: bool

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """Which records are deletes."""
        mask: npt.NDArray[np.bool_] = (self.rows.column("flags").to_numpy() & FLAG_DELETE) != 0
        return mask

    def batch(self, *, ordered: bool) -> TagBatch:
        """The records as the stream's decisions take them; ``ordered``: the table has an ordering field."""
        column = {name: self.rows.column(name).to_numpy() for name in self.rows.column_names}
        return TagBatch(
            skeys=column["skey"],
            partitions=column["part"],
            ordering=column["ord"] if ordered else None,
            flags=column["flags"].astype(np.uint8),
            source=column["src"],
            pos_hi=column["pos_hi"],
            pos_lo=column["pos_lo"],
        )


def read_sample(path: str, spec: DecodeSpec, limit: int) -> Sample:
    """At most ``limit`` records (0: all) of a file, or of the files below a folder, oldest file first.

    ConfigError when there is no such path, AdminError for a file that cannot be read and a sample without a record.
    """
    files = files_below(path, "--sample")
    decoded: list[pa.RecordBatch] = []
    left, more, used = limit or None, False, 0
    for file in files:
        number = 0
        for lines in lines_of(file):
            taken = lines if left is None else lines[:left]
            more = len(taken) < len(lines)
            if taken:
                decoded.append(cached_decoder(spec).keys(raw_lines(file, taken, number)))
                used += number == 0
                number += len(taken)
            left = None if left is None else left - len(taken)
            if more:
                break
        if more:
            break
    if not decoded or not any(batch.num_rows for batch in decoded):
        raise AdminError(f"the sample {path} has no record; give a file or folder with lines of JSON")
    rows = pa.Table.from_batches(decoded)
    wrong = (rows.column("flags").to_numpy() & FLAG_BAD) != 0
    bad = rows.filter(pa.array(wrong))
    named = bad.slice(0, _SHOWN).select(["src", "pos_lo", "reason"]).to_pylist()
    first_bad = tuple(BadLine(r["src"], r["pos_lo"], r["reason"]) for r in named)
    if bad.num_rows == rows.num_rows:
        at = first_bad[0]
        raise AdminError(
            f"no record of the sample {path} fits the table, {bad.num_rows:,} are bad; the first is line {at.line} of "
            f"{at.file}: {at.reason}. Give the stream's own --props, whose schema may have defaults"
        )
    good = rows.filter(pa.array(~wrong)).combine_chunks()
    return Sample(
        good.append_column("record_key", record_keys(good.column("skey").combine_chunks())),
        used,
        bad.num_rows,
        first_bad,
        more,
    )
