"""The Prometheus metrics of a run: name, unit and meaning of each, and its value from a snapshot.

This module counts nothing: a scrape makes the metrics from what the run knows at that moment. An unknown value has no
sample, so an alert on it does not fire by chance. docs/operations/monitoring.md lists the same names; a test compares
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tagstream.streaming.batch.report import KINDS
from tagstream.streaming.monitor import health
from tagstream.streaming.monitor.run_status import DURATION_BOUNDS, SERVICES
from tagstream.streaming.monitor.snapshot import Snapshot, Waiting

# Labels of one metric in addition to table and stream, and its value.
Samples = Iterable[tuple[tuple[str, ...], float | None]]
PHASES = ("check", "prepare", "tasks", "commit", "services")


@dataclass(frozen=True)
class Definition:
    """One metric. ``name``: as scraped (counters with ``_total``). ``unit``: in words. ``of``: returns its samples."""

    name: str
    kind: str
    unit: str
    text: str
    of: Callable[[Snapshot], Samples]
    labels: tuple[str, ...] = field(default=())


def _services(s: Snapshot) -> tuple[str, ...]:
    """The services that there are in any run, and others of this one."""
    return tuple(dict.fromkeys([*SERVICES, *s.services]))


def _one(value: Callable[[Snapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda s: (((), value(s)),)


def _info(s: Snapshot) -> Samples:
    about = s.about
    return (((about.version, about.spark, about.python, about.table_type, about.index, about.source), 1.0),)


def most_waiting(s: Snapshot, count: int) -> list[Waiting]:
    """The partitions of the topic with the most unread records."""
    return sorted(s.waiting, key=lambda part: (-part.records, part.partition))[:count]


def _of_files(name: str) -> Callable[[Snapshot], Samples]:
    return _one(lambda s: None if s.files is None else float(getattr(s.files.total, name)))


def _index(value: Callable[[Snapshot], float]) -> Callable[[Snapshot], Samples]:
    """A sample only once every key group is known: the sum over some of them would look like the whole index."""
    return _one(lambda s: value(s) if s.groups_whole else None)


METRICS: tuple[Definition, ...] = (
    Definition(
        "tagstream_info", "gauge", "1", "Always 1; the labels have the versions and the kind of the stream", _info,
        ("version", "spark", "python", "table_type", "index", "source"),
    ),
    Definition(
        "tagstream_health", "gauge", "0 or 1", "1 for the state the job is in, 0 for the others",
        lambda s: (((state,), float(on)) for state, on in health.as_states(s.health).items()), ("state",),
    ),
    Definition(
        "tagstream_run_start_timestamp_seconds", "gauge", "seconds since 1970", "When this run began",
        _one(lambda s: s.started_ms / 1000),
    ),
    Definition(
        "tagstream_runs_total", "counter", "starts",
        "Starts of the query on this checkpoint; kept in the checkpoint, so it continues over restarts of the process",
        _one(lambda s: s.run),
    ),
    Definition(
        "tagstream_restarts_total", "counter", "restarts",
        "How often this run restarted its query after an error that a restart fixes, by the error's class",
        lambda s: (((error,), count) for error, count in s.restarts.items()), ("error",),
    ),
    Definition(
        "tagstream_errors_total", "counter", "runs",
        "Runs of this checkpoint that ended with an error, by its class; kept in the checkpoint",
        lambda s: (((error,), count) for error, count in s.stops.items()), ("error",),
    ),
    Definition(
        "tagstream_bad_record_stops_total", "counter", "runs",
        "Runs of this checkpoint that were stopped by bad records; kept in the checkpoint",
        _one(lambda s: s.stops.get(health.BAD_RECORDS_ERROR, 0)),
    ),
    Definition(
        "tagstream_warnings_total", "counter", "log lines", "Warnings and errors that this run has logged",
        _one(lambda s: s.warnings_total),
    ),
    Definition(
        "tagstream_lag_records", "gauge", "records",
        "Records in the topic that no commit of this stream has; no sample for files, where it is unknown",
        _one(lambda s: s.lag),
    ),
    Definition(
        "tagstream_lag_partition_records", "gauge", "records",
        "The same by partition of the topic, as last read from the broker; only the 100 partitions with the most",
        lambda s: (((str(part.partition),), part.records) for part in most_waiting(s, 100)), ("partition",),
    ),
    Definition(
        "tagstream_data_age_seconds", "gauge", "seconds",
        "Age of the oldest record in the topic that is not committed, by its timestamp; 0 when all are committed",
        _one(lambda s: s.data_age_s),
    ),
    Definition(
        "tagstream_catch_up_seconds", "gauge", "seconds", "Time to read the lag at the rate of the last five batches",
        _one(lambda s: s.catch_up_s),
    ),
    Definition(
        "tagstream_last_commit_age_seconds", "gauge", "seconds",
        "Time since the last commit of this stream by any run; before the first commit, since the checkpoint was made",
        _one(lambda s: s.last_commit_age_s),
    ),
    Definition(
        "tagstream_batch", "gauge", "number", "Number of the current batch, or of the last one",
        _one(lambda s: s.doing.batch_id if s.doing.batch_id is not None else s.recent[-1].batch_id if s.recent else None),
    ),
    Definition(
        "tagstream_batch_running_seconds", "gauge", "seconds", "How long the current batch has run; 0 between two batches",
        _one(lambda s: s.batch_running_s),
    ),
    Definition(
        "tagstream_batches_total", "counter", "batches", "Batches committed in this run", _one(lambda s: s.batches)
    ),
    Definition(
        "tagstream_replayed_batches_total", "counter", "batches", "Batches that the table already had",
        _one(lambda s: s.replayed),
    ),
    Definition("tagstream_batch_seconds", "histogram", "seconds", "Time of a batch", lambda _: ()),
    Definition(
        "tagstream_batch_phase_seconds_total", "counter", "seconds",
        "Time in batches by phase: check (timeline and lease), prepare (profile, instant), tasks (read, tag, write), "
        "commit, services (compaction, clustering, cleaning, archiving)",
        lambda s: (((phase,), s.phases.get(phase, 0.0)) for phase in PHASES), ("phase",),
    ),
    Definition(
        "tagstream_records_total", "counter", "records", "Records read from the source in this run",
        _one(lambda s: s.counts["records"]),
    ),
    Definition(
        "tagstream_rows_total", "counter", "records",
        "The same records by kind of result; the kinds add up to tagstream_records_total",
        lambda s: (((kind,), s.counts[kind]) for kind in KINDS), ("kind",),
    ),
    Definition("tagstream_files_total", "counter", "files", "Data files written", _one(lambda s: s.counts["files"])),
    Definition(
        "tagstream_written_bytes_total", "counter", "bytes", "Bytes of data files written", _one(lambda s: s.counts["bytes"])
    ),
    Definition(
        "tagstream_services_total", "counter", "actions", "Compactions, cleans and archivings that this run has completed",
        lambda s: (((name,), s.services.get(name, 0)) for name in _services(s)), ("service",),
    ),
    Definition(
        "tagstream_service_failing", "gauge", "0 or 1", "1 while the last try of the service failed; it is tried again",
        lambda s: (((name,), float(name in s.services_failing)) for name in _services(s)), ("service",),
    ),
    Definition(
        "tagstream_service_last_success_timestamp_seconds", "gauge", "seconds since 1970",
        "When the service last completed an action, in this run or according to the timeline",
        lambda s: (((x.name,), None if x.last_ms is None else x.last_ms / 1000) for x in s.service_lines), ("service",),
    ),
    Definition(
        "tagstream_quarantine_records", "gauge", "records", "Bad records that the checkpoint keeps, of all its batches",
        _one(lambda s: None if s.quarantine is None or not s.quarantine.whole else s.quarantine.records),
    ),
    Definition("tagstream_index_keys", "gauge", "keys", "Live keys in the index", _index(lambda s: s.index_keys)),
    Definition(
        "tagstream_index_tombstones", "gauge", "keys", "Deleted keys that the index keeps",
        _index(lambda s: s.index_tombstones),
    ),
    Definition(
        "tagstream_index_bytes", "gauge", "bytes", "Bytes of the index on local disks", _index(lambda s: s.index_bytes)
    ),
    Definition(
        "tagstream_index_largest_group_keys", "gauge", "keys", "Live keys of the largest key group",
        _index(lambda s: max((g.keys for g in s.groups), default=0)),
    ),
    Definition(
        "tagstream_table_partitions", "gauge", "partitions", "Partitions of the table",
        _one(lambda s: None if s.files is None else s.files.partitions),
    ),
    Definition(
        "tagstream_table_looked_at_partitions", "gauge", "partitions",
        "Partitions whose files were listed; the next metrics are sums over these", _one(
            lambda s: None if s.files is None else s.files.looked_at
        ),
    ),
    Definition("tagstream_table_file_groups", "gauge", "file groups", "File groups", _of_files("file_groups")),
    Definition(
        "tagstream_table_small_files", "gauge", "file groups",
        "File groups whose base file is under hoodie.parquet.small.file.limit", _of_files("small_files"),
    ),
    Definition("tagstream_table_base_bytes", "gauge", "bytes", "Bytes of base files", _of_files("base_bytes")),
    Definition("tagstream_table_log_files", "gauge", "files", "Log files of the newest slices", _of_files("log_files")),
    Definition("tagstream_table_log_bytes", "gauge", "bytes", "Bytes of these log files", _of_files("log_bytes")),
)  # fmt: skip


class RunCollector(Collector):
    """Makes metrics from a snapshot. It is registered with a registry that only this run uses."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """All metrics with their current values."""
        s = self._snapshot()
        stream = tuple(_clean(text) for text in (s.about.table, s.about.stream))
        for found in METRICS:
            if found.kind == "histogram":
                yield _histogram(found, s, stream)
                continue
            make = CounterMetricFamily if found.kind == "counter" else GaugeMetricFamily
            family = make(found.name.removesuffix("_total"), found.text, labels=("table", "stream", *found.labels))
            for labels, value in found.of(s):
                if value is not None:
                    family.add_metric((*stream, *(_clean(label) for label in labels)), float(value))
            yield family

    def describe(self) -> Iterator[Metric]:
        """Empty, because registering must not take a snapshot."""
        return iter(())


def _histogram(found: Definition, s: Snapshot, stream: tuple[str, ...]) -> Metric:
    family = HistogramMetricFamily(found.name, found.text, labels=("table", "stream"))
    under, buckets = 0, []
    for bound, count in zip((*map(float, DURATION_BOUNDS), float("inf")), s.durations, strict=True):
        under += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), under))
    family.add_metric(stream, buckets, s.seconds)
    return family


def _clean(text: str) -> str:
    """A label that UTF-8 can encode."""
    return text.encode("utf-8", "replace").decode()
