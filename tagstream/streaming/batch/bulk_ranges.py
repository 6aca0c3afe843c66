"""The global sort of BULK_INSERT: a sample of the records says which write task gets which range of them.

Records are ordered by partition path and key, as bytes (:func:`places_of`). A range ends where a base file ends, and each
partition is cut into as many files as its size needs. So files have about the size that is asked for, and no small one is
left over at the end of a range. The size of files comes before the number of tasks: small files stay in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.packed import Codes, unpack
from tagstream.streaming.source.source import in_blocks
from tagstream.table import chunks

SAMPLE_SQL = "place binary, weight double, row_bytes double"
_SAMPLED_PLACES = 2_000  # of a task
_SAMPLED_AT_ONCE = 200  # of a block
_MEASURED_ROWS = 16_384  # of a task
_MARGIN = 1.05  # for the error of a sample: a file that is a little larger than allowed would become two
_END = b"\0"  # of a partition path in a place


def places_of(rows: pa.Table) -> pa.Array:
    """Partition path and state key of each row as bytes, which are in the order of a global sort. Empty for bad records."""
    part = chunks.flat(rows.column("part")).cast(pa.binary())
    joined = pc.binary_join_element_wise(part, chunks.flat(rows.column("skey")), _END)
    return pc.fill_null(joined, b"")


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of packed values, in blocks."""
    values = (value for batch in batches for value in batch.column("rows").drop_null())
    return in_blocks(rows for value in values for rows in unpack([value.as_buffer()]).to_batches())


def make_sample_function(
    row_bytes: Callable[[pa.Table], float],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that samples a task's packed keyed records (``SAMPLE_SQL``).

    It returns places at equal distances, each with the number of rows that it stands for and the bytes of a row in a
    file. ``row_bytes``: returns these bytes for some rows; 0 where they are unknown.
    """

    def sample(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        places, weights = [], []
        measured = 0.0
        for rows in unpacked(batches):
            measured = measured or row_bytes(rows.slice(0, _MEASURED_ROWS))
            some = np.arange(0, rows.num_rows, max(1, -(-rows.num_rows // _SAMPLED_AT_ONCE)))
            places.append(places_of(chunks.take(rows.select(["part", "skey"]), some)))
            weights.append(np.full(len(some), rows.num_rows / len(some)))
        if places:
            place, weight = pa.concat_arrays(places), np.concatenate(weights)
            kept = np.arange(0, len(place), max(1, -(-len(place) // _SAMPLED_PLACES)))
            weight = weight[kept] * (weight.sum() / weight[kept].sum())
            sizes = np.full(len(kept), measured)
            columns = {"place": place.take(pa.array(kept)), "weight": weight, "row_bytes": sizes}
            yield pa.RecordBatch.from_pydict(columns)

    return sample


@dataclass(frozen=True)
class Ranges:
    """``bounds``: the first places of all ranges but the first, sorted. ``row_bytes``: of a row in a file; 0: unknown."""

    bounds: pa.Array
    row_bytes: float


def ranges_of(sample: pa.Table, *, max_file_bytes: int, most: int) -> Ranges:
    """Up to ``most`` ranges. ``sample``: columns of ``SAMPLE_SQL``."""
    places = chunks.flat(sample.column("place")).cast(pa.binary())
    order = pc.sort_indices(places).to_numpy()
    places, weights = places.take(pa.array(order)), sample.column("weight").to_numpy()[order]
    sizes = sample.column("row_bytes").to_numpy()[order]
    if not len(places) or not weights.any():
        return Ranges(pa.array([], pa.binary()), 0.0)
    row_bytes = float(np.average(sizes, weights=weights * (sizes > 0))) * _MARGIN if sizes.any() else 0.0
    starts, rows = _files(places, weights, row_bytes / max_file_bytes)
    share = rows.sum() / most
    task = ((np.cumsum(rows) - rows / 2) / share).astype(np.int64)  # of each file, by its middle
    first = np.flatnonzero(task[1:] != task[:-1]) + 1
    return Ranges(pa.array([starts[i] for i in first.tolist()], pa.binary()), row_bytes)


def _files(
    places: pa.Array, weights: npt.NDArray[np.float64], files_a_row: float
) -> tuple[list[bytes], npt.NDArray[np.float64]]:
    """(first place, rows) of each file. ``places`` are sorted."""
    paths = pc.list_element(pc.split_pattern(places, _END, max_splits=1), 0).dictionary_encode()
    codes = paths.indices.to_numpy()
    begins = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    rows = np.add.reduceat(weights, begins)
    counts = np.maximum(1, np.ceil(rows * files_a_row)).astype(np.int64)
    starts: list[bytes] = []
    sizes: list[float] = []
    for begin, end, count in zip(begins.tolist(), [*begins[1:].tolist(), len(places)], counts.tolist(), strict=True):
        reached = np.cumsum(weights[begin:end])
        wanted = reached[-1] * np.arange(1, count) / count
        at = np.unique(np.searchsorted(reached, wanted, side="right"))
        at = begin + at[(at > 0) & (at < end - begin)]
        path = paths.dictionary[int(codes[begin])].as_py()
        starts += [path + _END, *(places[int(i)].as_py() for i in at)]
        sizes += np.add.reduceat(weights[begin:end], np.concatenate(([0], at - begin))).tolist()
    return starts, np.array(sizes)


def by_range(rows: pa.Table, bounds: pa.Array) -> Codes:
    """Range of each row: how many of the sorted ``bounds`` are not after its place (:func:`places_of`)."""
    places = places_of(rows)
    both = pa.concat_arrays([bounds, chunks.flat(places)])
    order = pc.sort_indices(both, sort_keys=[("", "ascending")]).to_numpy()  # stable: of equal ones a bound is first
    passed = np.cumsum(order < len(bounds))
    lanes = np.empty(len(both), np.int64)
    lanes[order] = passed
    return lanes[len(bounds) :]
