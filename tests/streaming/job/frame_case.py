"""A stream of the user's own: events in files, read by Spark as the user's code would, and upserted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tagstream
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

COLUMNS = "id string, part string, ts long, name string, amount double, _hoodie_is_deleted boolean"


@dataclass
class FrameCase:
    """Folders of a stream. ``conf``: options beside those of the events."""

    folder: Path
    spark: SparkSession
    conf: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.folder / "in"

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def frame(self) -> DataFrame:
        """The events, a file a batch."""
        self.source.mkdir(parents=True, exist_ok=True)
        return self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(self.source))

    def options(self) -> dict[str, Any]:
        return {
            "hoodie.table.name": "events",
            **ev.properties(self.conf),
            "hoodie.index.bloom.num_entries": 1000,
            "index.local.dir": self.folder / "local",
            "spark.sql.shuffle.partitions": 2,
            **self.conf,
        }

    def start(self, rows: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        """Start the query; with no trigger it takes what there is and ends."""
        frame = self.frame() if rows is None else rows
        return tagstream.upsert(
            frame, self.table, self.checkpoint, options=self.options(), trigger=trigger or "availableNow"
        )

    def run(self, rows: DataFrame | None = None) -> None:
        """Take what there is."""
        self.start(rows).awaitTermination()

    def is_oracles(self, events: list[ev.Event]) -> None:
        """The table has the rows that the events lead to."""
        expected = ev.rows(ev.oracle(events).values()).drop_columns(["_hoodie_is_deleted"])
        found = read_table(self.table, meta_columns=False).select(expected.column_names)
        assert not (wrong := compare(expected, found, ["id"])), wrong
