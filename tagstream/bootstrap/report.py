"""Progress of a bootstrap while it runs, and the report at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tagstream.bootstrap.plan import BootstrapPlan
from tagstream.bootstrap.spill import ScanDone
from tagstream.bootstrap.tasks import TWICE_SUFFIX, BootstrapSpec
from tagstream.state.index_loads import GroupStart

TWICE_POLICY = "the slice with the newest base instant wins"
_EXAMPLES = 100
_EXAMPLES_BYTES = 1 << 20


@dataclass(frozen=True)
class BootstrapProgress:
    """Progress of a stage: `done` of `total` tasks; `keys` and `share` (of all bytes when scanning, of all keys when
    loading, 0 to 1) so far.

    `files` of `total_files` are scanned. `seconds`: time of the stage. `resumed_share`: the share that an earlier run did.
    """

    stage: Literal["scan", "load"]
    done: int
    total: int
    keys: int
    share: float
    seconds: float
    files: int
    total_files: int
    resumed_share: float = 0.0

    @property
    def rate(self) -> float:
        """Keys per second of the stage, without those of an earlier run."""
        fresh = self.keys * (1 - self.resumed_share / self.share) if self.share else 0.0
        return fresh / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the index is loaded, at the stage's speed so far; None before there is a speed.

        The second stage is estimated to take as long as the first, as it does for tables of base files.
        """
        fresh = self.share - self.resumed_share
        if fresh <= 0:
            return None
        whole = self.seconds / fresh
        return whole * (1 - self.share) + (whole if self.stage == "scan" else 0.0)


@dataclass(frozen=True)
class BootstrapReport:
    """The report of a complete index load, stored in its marker.

    `index_load`: number of the load. `rows` were read from base files. `expected_rows` are the rows by their commits,
    without the `uncounted` files, whose commits are archived. `mismatched` names files with another number of rows.
    `twice`: keys that were live in several locations; `twice_examples` has some, the load's ``*.twice.jsonl`` files have
    all. `skipped`: slices with a corrupt file, and missing files; `left_out`: what was not planned; both with the reason.
    `resumed`: tasks that an earlier, interrupted run had done. `index_bytes`: of all first snapshots. `carried`: the keys
    were copied from another index and not from the table, so the options of a load do not apply.
    """

    table: str
    index_load: int
    instant: str | None
    slices: int
    files: int
    bytes: int
    rows: int
    expected_rows: int
    live: int
    tombstones: int
    twice: int
    twice_policy: str
    twice_examples: Sequence[Mapping[str, Any]]
    mismatched: Sequence[str]
    skipped: Sequence[str]
    left_out: Sequence[str]
    damaged_blocks: int
    resumed: int
    index_bytes: int
    seconds: float
    partition_regex: str = ".*"
    uncounted: int = 0
    carried: bool = False

    @property
    def keys_per_second(self) -> float:
        """Live keys per second of the whole run."""
        return self.live / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_key(self) -> float:
        """Bytes of the first snapshots per key; tombstones count as keys."""
        keys = self.live + self.tombstones
        return self.index_bytes / keys if keys else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, doc: Mapping[str, Any]) -> BootstrapReport:
        """The report from the form of `to_dict`."""
        return cls(**doc)


def make_report(
    spec: BootstrapSpec, scanned: Sequence[ScanDone], starts: Sequence[GroupStart], resumed: int, seconds: float
) -> BootstrapReport:
    """Sum up the results of all tasks. `seconds`: duration of the whole run."""
    plan = spec.plan
    slices = [s for done in scanned for s in done.slices]
    return BootstrapReport(
        table=plan.table.base_path,
        index_load=spec.index_load,
        instant=plan.instant,
        slices=len(plan.slices),
        files=plan.files,
        bytes=plan.size,
        rows=sum(s.rows for s in slices),
        expected_rows=plan.expected_rows,
        live=sum(s.live for s in starts),
        tombstones=sum(s.tombstones for s in starts),
        twice=sum(s.twice for s in starts),
        twice_policy=TWICE_POLICY,
        twice_examples=_examples(spec),
        mismatched=_mismatched(plan, scanned),
        skipped=[s.skipped for s in slices if s.skipped is not None] + [f"{path} is missing" for path in plan.missing],
        left_out=[f"{item.what}: {item.why}" for item in plan.left_out],
        damaged_blocks=sum(s.damaged_blocks for s in slices),
        resumed=resumed,
        index_bytes=sum(s.size for s in starts),
        seconds=seconds,
        partition_regex=plan.partition_regex,
        uncounted=plan.uncounted,
    )


def _mismatched(plan: BootstrapPlan, scanned: Sequence[ScanDone]) -> list[str]:
    found = []
    for done in (s for task in scanned for s in task.slices if s.skipped is None):
        planned = plan.slices[done.number]
        if planned.expected_rows is not None and planned.expected_rows != done.rows:
            path = planned.file_slice.base_path
            found.append(f"{path} has {done.rows} rows, its commit says {planned.expected_rows}")
    return found


def _examples(spec: BootstrapSpec) -> list[dict[str, Any]]:
    durable = spec.layout.durable
    there = set(durable.names(spec.folder))
    found: list[dict[str, Any]] = []
    for label in spec.labels:
        name = f"{label}{TWICE_SUFFIX}"
        if name in there and len(found) < _EXAMPLES:
            begin = durable.read_range(f"{spec.folder}/{name}", 0, _EXAMPLES_BYTES)
            found += [json.loads(line) for line in begin.split(b"\n")[:-1]]  # the last one may be cut
    return found[:_EXAMPLES]
