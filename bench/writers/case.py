"""One writer on one workload: its order, its events, and its figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.inputs.workload import Workload

TAGSTREAM, HUDI_SPARK, HUDI_FLINK = "tagstream", "hudi-spark", "hudi-flink"
PAIMON, DELTA_RS = "paimon-flink", "delta-rs"  # tables of other formats
INDEXES: dict[str, tuple[str, ...]] = {
    TAGSTREAM: ("STATE", "BUCKET", "RECORD_INDEX"),
    HUDI_SPARK: ("GLOBAL_BLOOM", "GLOBAL_SIMPLE", "RECORD_INDEX", "BUCKET", "bulk_insert"),
    HUDI_FLINK: ("FLINK_STATE",),
    PAIMON: ("WRITE_ONLY", "COMPACTING"),
    DELTA_RS: ("MERGE",),
}
TABLE_TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
WITH_METADATA, WITH_SERVICES = "+metadata", "+services"
OLD_VERSION = 6  # the newest that Hudi's Flink writer here supports
BUCKETS = 4  # of a partition
WARM_UP, WARM_UP_ONE_ROW = 2, 5


class BenchError(Exception):
    """A case could not be measured. The text says why and where its log is."""


@dataclass(frozen=True)
class Writer:
    """An engine and its index (`bulk_insert`: Hudi's operation without a lookup).

    `metadata`: its table has a metadata table with the listing, column statistics and a record index. `services`: it
    compacts and cleans the table meanwhile, and the figure includes all batches, also those that wait for a service.
    """

    name: str
    index: str
    metadata: bool = False
    services: bool = False

    @classmethod
    def parse(cls, text: str) -> Writer:
        """Parse ``engine:INDEX``, optionally with ``+metadata`` and then ``+services``; ValueError for an unknown writer."""
        name, _, rest = text.partition(":")
        services = rest.endswith(WITH_SERVICES)
        metadata = rest.removesuffix(WITH_SERVICES).endswith(WITH_METADATA)
        index = rest.removesuffix(WITH_SERVICES).removesuffix(WITH_METADATA)
        is_known = index in INDEXES.get(name, ()) and (not metadata or name in (TAGSTREAM, HUDI_SPARK))
        if not is_known or (services and name not in (TAGSTREAM, HUDI_SPARK, HUDI_FLINK)):
            known = ", ".join(f"{n}:{i}" for n, indexes in INDEXES.items() for i in indexes)
            more = (
                f"{WITH_METADATA} behind those of {TAGSTREAM} and {HUDI_SPARK}, {WITH_SERVICES} behind those of Hudi's"
            )
            raise ValueError(f"there is no writer {text!r}; there are {known}; {more}")
        return cls(name, index, metadata, services)

    def __str__(self) -> str:
        return f"{self.name}:{self.called}"

    @property
    def called(self) -> str:
        """Name of the index in reports."""
        return self.index + WITH_METADATA * self.metadata + WITH_SERVICES * self.services

    def version(self, asked: int) -> int:
        """The version of its tables, when ``asked`` is the version for all writers."""
        return OLD_VERSION if self.name == HUDI_FLINK else asked

    @property
    def bucketed(self) -> bool:
        """True when the table's file groups are buckets."""
        return self.index == "BUCKET"

    @property
    def table_format(self) -> str:
        """``hudi``, or the format of the peer's own tables."""
        return {PAIMON: "paimon", DELTA_RS: "delta"}.get(self.name, "hudi")

    def why_not(self, workload: str) -> str | None:
        """The reason why the writer cannot give the workload's rows; None when it can."""
        if workload == "debezium" and self.name not in (TAGSTREAM, HUDI_FLINK):
            return "its program here reads plain JSON"
        if self.index == "bulk_insert" and workload != "insert":
            return "it writes an existing key a second time"
        if self.bucketed and workload not in ("insert", "update"):
            return "a row that changes partition stays in the old one too"
        return None


@dataclass(frozen=True)
class Case:
    """`base` is copied to become the table. All files of the case are in `place`."""

    run: int
    workload: Workload
    folder: Path
    table_type: str
    writer: Writer
    base: Path
    place: Path
    codec: str = "zstd"
    conf: dict[str, str] = field(default_factory=dict)
    table_version: int = OLD_VERSION

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that every line of the case begins with."""
        return {
            "run": self.run,
            "workload": self.workload.name,
            "table_type": self.table_type,
            "keys": self.workload.keys,
            "records": self.workload.records,
            "writer": self.writer.name,
            "index": self.writer.called,
        }

    @property
    def table(self) -> Path:
        """The table that is written."""
        return self.place / "table"

    @property
    def events(self) -> Path:
        """The writer's event file, one JSON object per line."""
        return self.place / "events.jsonl"


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a writer. An incomplete last line of a killed writer is left out."""
    if not path.exists():
        return []
    found: list[dict[str, Any]] = []
    for line in path.read_text("utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def batch_lines(case: Case, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of the case's batches. BenchError when the writer made another number of batches."""
    batches = [e for e in events if e["event"] == "batch"]
    if [b["batch"] for b in batches] != list(range(case.workload.batches)):
        raise BenchError(f"{case.writer} made batches {[b['batch'] for b in batches]}, not {case.workload.batches}")
    names = ("batch", "seconds", "phases", "load1")
    return [{"kind": "batch", **case.identity, **{name: b[name] for name in names}} for b in batches]


def speed(case: Case, batches: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Median and best of the batches after the warm-up (of all, if there are no others).

    Records/s are those of the median. With services they are those of all these batches together, because some of them wait
    for a service.
    """
    warm_up = WARM_UP_ONE_ROW if case.workload.records == 1 else WARM_UP
    seconds = [b["seconds"] for b in batches]
    measured = seconds[warm_up:] or seconds[-1:]
    median = statistics.median(measured)
    counted = statistics.mean(measured) if case.writer.services else median
    return {
        "median_seconds": median,
        "best_seconds": min(measured),
        "records_per_second": case.workload.records / counted,
    }
