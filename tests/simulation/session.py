"""A Spark session, its context, an RDD and a frame, as far as the driver asks things of them: all in one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa


class Conf(dict[str, str]):
    """Spark's settings."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)


class Parts:
    """An RDD: one part for each element, as tasks that run one after the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def map(self, function: Callable[[Any], Any]) -> Parts:
        return Parts([function(part) for part in self._parts])

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterable[Any]]) -> Parts:
        return Parts([found for part in self._parts for found in function([part])])

    def collect(self) -> list[Any]:
        return list(self._parts)


class Session:
    """What the driver asks of a Spark session; it is its own context."""

    defaultParallelism = 2  # noqa: N815 (Spark's name)

    def __init__(self, folder: str) -> None:
        self.conf = Conf({"spark.local.dir": folder})

    @property
    def sparkContext(self) -> Session:
        return self

    def parallelize(self, parts: Sequence[Any], _count: int) -> Parts:
        return Parts(list(parts))

    def range(self, start: int, end: int, _step: int, _tasks: int) -> Frame:
        return Frame([pa.RecordBatch.from_pydict({"id": pa.array(range(start, end), pa.int64())})])


class Frame:
    """Rows of a frame whose steps are the product's functions over Arrow batches."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = list(batches)

    def mapInArrow(self, function: Callable[..., Iterator[pa.RecordBatch]], _schema: object) -> Frame:
        return Frame([b for b in function(iter(self._batches)) if b.num_rows])

    def repartition(self, *_: object) -> Frame:
        return self

    def sortWithinPartitions(self, *columns: str) -> Frame:
        if not self._batches:
            return self
        rows = pa.Table.from_batches(self._batches)
        return Frame(rows.sort_by([(name, "ascending") for name in columns]).to_batches())

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for batch in self._batches for row in batch.to_pylist()]
