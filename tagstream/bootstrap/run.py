"""Load the index from an existing table: plan, scan, load, mark as complete. In the code a load is a generation.

The result of every task is a durable file in the load's folder. So a run after a kill continues where the earlier one
stopped, as long as table and choices are the same; otherwise it starts again. An unfinished load is never used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from tagstream.bootstrap import deleted_keys
from tagstream.bootstrap.errors import BootstrapError
from tagstream.bootstrap.plan import BootstrapPlan, check_labels, plan_bootstrap
from tagstream.bootstrap.report import BootstrapProgress, BootstrapReport, make_report
from tagstream.bootstrap.scan import key_reader
from tagstream.bootstrap.spill import ScanDone, done_tasks, read_done, whole_done
from tagstream.bootstrap.tasks import SCAN, BootstrapSpec, CorruptPolicy, guarded, load_task, scan_task
from tagstream.state.codec import minutes_of
from tagstream.state.index_loads import GroupStart, IndexLoadMarker, complete_index_load, read_marker, read_start
from tagstream.state.index_view import IndexHeads
from tagstream.state.layout import StateLayout, has_bytes
from tagstream.state.ordering import ordering_kind
from tagstream.table.errors import CorruptFileError, TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import each

LOG = logging.getLogger("tagstream")
_PLAN = "plan.json"
_POLL_S = 0.2
_JOB_GROUP = "tagstream bootstrap"

OnProgress = Callable[[BootstrapProgress], None]


def bootstrap_index(
    table: HoodieTable,
    layout: StateLayout,
    labels: Sequence[int],
    index_load: int,
    *,
    clock_ms: Callable[[], int],
    ordering_type: pa.DataType | None,
    partition_regex: str = ".*",
    corrupt: CorruptPolicy = "fail",
    first_batch: int = 0,
    spark: SparkSession | None = None,
    progress: OnProgress | None = None,
    plan: BootstrapPlan | None = None,
    former: IndexHeads | None = None,
) -> BootstrapReport:
    """Load the index in `layout` up to the table's newest completed instant, as load number `index_load` (1 or greater).

    The caller holds the table's lease and has settled pending instants. `labels`: of the checkpoint's key groups.
    `ordering_type`: the stream's type of the ordering column. `corrupt`: "skip" counts and skips corrupt files.
    `first_batch`: the first batch that will run on this load. `plan`: the result of `plan_bootstrap` with the same
    regex. `former`: an index with the same labels that has ordering values which the table lacks
    (`bootstrap.tasks.with_known_order`).
    A load that is already complete is only reported if it covers the same instant, else BootstrapError: take the next
    number. CorruptFileError names the first corrupt file, unless `corrupt` is "skip".
    """
    if index_load < 1:
        raise ValueError("index load 0 is the empty index; a bootstrap makes number 1 or a greater one")
    check_labels(labels)
    check_ordering(table, layout, ordering_type)
    plan = plan_bootstrap(table, partition_regex) if plan is None else plan
    marker = read_marker(layout, index_load)
    if marker is not None:
        return _again(marker, plan)
    if plan.missing and corrupt == "fail":
        raise CorruptFileError(
            f"table {table.base_path} lacks {len(plan.missing)} files that its commits name, first "
            f"{', '.join(plan.missing[:3])}; restore them, or let the load skip and count them"
        )
    begun = clock_ms()
    choices = [partition_regex, corrupt, layout.ordering, str(ordering_type), layout.global_index, list(labels)]
    if former is not None:
        choices += [former.layout.durable.root, former.index_load, former.catch_up, former.batch_id]
    spec = BootstrapSpec(
        plan=plan,
        reader=key_reader(plan, ordering_type),
        layout=layout,
        labels=tuple(labels),
        index_load=index_load,
        first_batch=first_batch,
        minutes=_pin(layout, index_load, plan.fingerprint(*choices, first_batch), begun),
        corrupt=corrupt,
        tasks=plan.tasks(),
        former=former,
        deletes=() if layout.ordering == "none" else deleted_keys.files_of(table.storage, plan.timeline),
    )
    watch = _Watch(spec, progress, clock_ms)
    resumed = watch.resumed()
    scanned: list[ScanDone] = run_tasks(spark, partial(scan_task, spec), spec.scans, partial(watch.tick, "scan"))
    watch.begin_load(sum(p.rows for done in scanned for p in done.pieces))
    starts: list[GroupStart] = run_tasks(spark, partial(load_task, spec), len(labels), partial(watch.tick, "load"))
    report = make_report(spec, scanned, starts, resumed, (clock_ms() - begun) / 1000)
    done = IndexLoadMarker(
        index_load,
        plan.instant,
        report.live,
        report.tombstones,
        dict.fromkeys(labels, 0),
        report.to_dict(),
        covered=tuple(i.time for i in plan.timeline.completed_writes),
        first_batch=first_batch,
    )
    complete_index_load(layout, done)
    layout.durable.delete_tree(f"{spec.folder}/{SCAN}")
    return report


def check_ordering(table: HoodieTable, layout: StateLayout, ordering_type: pa.DataType | None) -> None:
    """BootstrapError unless the stream orders events as the table does.

    A table without ordering field may have a source that orders events (a log's position). The ordering values of the
    table's rows are then unknown. ValueError when the layout stores ordering values in another form.
    """
    if ordering_kind(ordering_type) != layout.ordering and (ordering_type is not None or has_bytes(layout.ordering)):
        raise ValueError(f"ordering values of type {ordering_type} are not stored as {layout.ordering!r}")
    fields = table.config.deciding_fields
    if (ordering_type is None) != (not fields):
        raise BootstrapError(
            f"table {table.config.name} at {table.base_path} has ordering field {', '.join(fields) or None!r}, the "
            f"stream orders by {'nothing' if ordering_type is None else ordering_type}; make them agree"
        )


def _again(marker: IndexLoadMarker, plan: BootstrapPlan) -> BootstrapReport:
    if marker.instant != plan.instant:
        raise BootstrapError(
            f"index load {marker.index_load} covers table {plan.table.base_path} as of {marker.instant}, but the newest "
            f"commit is {plan.instant}; make index load {marker.index_load + 1}"
        )
    return BootstrapReport.from_dict(marker.report)


def _pin(layout: StateLayout, index_load: int, fingerprint: str, now_ms: int) -> int:
    """Time of the load in minutes since 1970: of the run that this one continues, else of this run in a cleared folder."""
    folder = layout.index_load_dir(index_load)
    path = f"{folder}/{_PLAN}"
    try:
        doc: dict[str, Any] = json.loads(layout.durable.read(path))
        if doc["fingerprint"] == fingerprint:
            return int(doc["minutes"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    if layout.durable.exists(folder):
        where = layout.durable.where(folder)
        LOG.info("%s: an unfinished load has another state of the table or other choices; the load starts again", where)
        layout.durable.delete_tree(folder)
    layout.durable.replace(path, json.dumps({"fingerprint": fingerprint, "minutes": minutes_of(now_ms)}).encode())
    return minutes_of(now_ms)


def run_tasks(
    spark: SparkSession | None, task: Callable[[int], Any], count: int, tick: Callable[[], None]
) -> list[Any]:
    """Results of tasks 0..count-1 in order. The first TagstreamError of a task is raised as it is.

    `spark` None: the tasks run here, one after another. `tick`: called repeatedly while they run.
    """
    if spark is None:
        results = []
        for number in range(count):
            results.append(task(number))
            tick()
        return results
    if count == 0:
        return []
    context = spark.sparkContext
    found: list[Any] = []

    def job() -> None:
        try:
            context.setJobGroup(_JOB_GROUP, "loading the index from the table", interruptOnCancel=True)
            found.append(context.parallelize(range(count), count).map(partial(guarded, task)).collect())
        except Exception as e:  # passed to the waiting thread
            found.append(e)

    thread = InheritableThread(target=job)
    thread.daemon = True
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
            tick()
    except BaseException:  # a signal, or a progress callback that stops the run
        context.cancelJobGroup(_JOB_GROUP)
        raise
    outcome = found[0]
    if isinstance(outcome, Exception):
        raise outcome
    failed = next((r for r in outcome if isinstance(r, TagstreamError)), None)
    if failed is not None:
        raise failed
    return list(outcome)


class _Watch:
    """Counts the result files of a run. They show its progress wherever the tasks run."""

    def __init__(self, spec: BootstrapSpec, progress: OnProgress | None, clock_ms: Callable[[], int]) -> None:
        self._spec, self._progress, self._clock = spec, progress, clock_ms
        self._begun = clock_ms()
        self._scanned: dict[int, ScanDone] = {}
        self._loaded: dict[int, GroupStart] = {}
        self._rows = 0
        self._resumed: dict[str, float] = {}

    def scanned(self) -> int:
        """Scan tasks done so far."""
        spills = self._spec.spills
        for done in each(lambda task: read_done(spills, task), done_tasks(spills) - self._scanned.keys()):
            if done is not None:
                self._scanned[done.task] = done
        return len(self._scanned)

    def loaded(self) -> int:
        """Key groups loaded so far."""
        layout, index_load = self._spec.layout, self._spec.index_load
        names = {name.removesuffix(".json") for name in layout.durable.names(layout.index_load_dir(index_load))}
        new = [label for label in self._spec.labels if label not in self._loaded and str(label) in names]
        for start in each(lambda label: read_start(layout, index_load, label), new):
            if start is not None:
                self._loaded[start.label] = start
        return len(self._loaded)

    def resumed(self) -> int:
        """Number of tasks done before this run starts its own. They do not count for its speed."""
        spills = self._spec.spills
        each(lambda task: whole_done(spills, task), done_tasks(spills))  # what a power failure destroyed is done again
        done = self.scanned() + self.loaded()
        self._resumed = {"scan": self._scan_share(), "load": float(self._loaded_keys())}
        return done

    def begin_load(self, rows: int) -> None:
        """Start the second stage, over this number of rows."""
        self._rows, self._begun = rows, self._clock()
        self._resumed["load"] = min(1.0, self._resumed["load"] / (rows or 1))

    def tick(self, stage: Literal["scan", "load"]) -> None:
        """Report the progress of a stage."""
        if self._progress is None:
            return
        plan = self._spec.plan
        if stage == "scan":
            done, total, share = self.scanned(), len(self._spec.tasks), self._scan_share()
            slices = [s for d in self._scanned.values() for s in d.slices]
            keys, files = sum(s.live for s in slices), sum(plan.slices[s.number].files for s in slices)
        else:
            done, total, files = self.loaded(), len(self._spec.labels), plan.files
            keys = self._loaded_keys()
            share = 1.0 if done == total else min(1.0, keys / (self._rows or 1))
        seconds = (self._clock() - self._begun) / 1000
        resumed = self._resumed.get(stage, 0.0)
        self._progress(BootstrapProgress(stage, done, total, keys, share, seconds, files, plan.files, resumed))

    def _scan_share(self) -> float:
        slices = (s for d in self._scanned.values() for s in d.slices)
        size = sum(self._spec.plan.slices[s.number].file_slice.size for s in slices)
        return size / (self._spec.plan.size or 1)

    def _loaded_keys(self) -> int:
        return sum(s.live for s in self._loaded.values())
