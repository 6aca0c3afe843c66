"""Prometheus metrics of a run over HTTP (``--metrics-port``)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from tagstream.streaming.progress.report import BatchReport
from tagstream.table.errors import ConfigError

_KINDS = ("inserts", "updates", "deletes", "moves", "late", "superseded", "quarantined")
_BUCKETS = (0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600)


class Metrics:
    """An HTTP server on ``port`` (0: a free one) of ``host``, with a registry of its own.

    ``clock``: seconds, for the commit's age.
    """

    def __init__(self, port: int, host: str = "127.0.0.1", clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._committed: float | None = None
        registry = CollectorRegistry()
        self._lag = Gauge("tagstream_lag_records", "Records the source holds that no batch took", registry=registry)
        self._lag.set(math.nan)
        self._records = Counter("tagstream_records", "Records taken from the source", registry=registry)
        self._rows = Counter("tagstream_rows", "Records by what became of them", ["kind"], registry=registry)
        for kind in _KINDS:
            self._rows.labels(kind)
        self._batches = Counter("tagstream_batches", "Batches committed", registry=registry)
        self._replayed = Counter("tagstream_replayed_batches", "Batches the table had already", registry=registry)
        self._seconds = Histogram("tagstream_batch_seconds", "Time of a batch", buckets=_BUCKETS, registry=registry)
        self._files = Counter("tagstream_files", "Data files written", registry=registry)
        self._bytes = Counter("tagstream_written_bytes", "Bytes of data files written", registry=registry)
        self._keys = Gauge("tagstream_index_keys", "Live keys in the index", registry=registry)
        self._tombstones = Gauge("tagstream_index_tombstones", "Deleted keys the index remembers", registry=registry)
        self._index_bytes = Gauge("tagstream_index_bytes", "Bytes of the index on local disks", registry=registry)
        age = Gauge("tagstream_last_commit_age_seconds", "Time since this run's last commit", registry=registry)
        age.set_function(self._age)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as e:
            raise ConfigError(
                f"--metrics-port {port}: cannot listen there ({e.strerror}) on --metrics-host {host}; give another one"
            ) from None

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_port)

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""
        self._keys.set(report.index_keys)
        self._tombstones.set(report.index_tombstones)
        self._index_bytes.set(report.index_bytes)
        if report.lag is not None:
            self._lag.set(report.lag)
        if report.replayed:
            self._replayed.inc()
            return
        self._batches.inc()
        self._seconds.observe(report.seconds)
        self._records.inc(report.records)
        for kind in _KINDS:
            self._rows.labels(kind).inc(getattr(report, kind))
        self._files.inc(report.files)
        self._bytes.inc(report.bytes)
        if report.instant is not None:
            self._committed = self._clock()

    def lag(self, records: int | None) -> None:
        """Records the source holds that no batch has taken; None: unknown."""
        self._lag.set(math.nan if records is None else records)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _age(self) -> float:
        return math.nan if self._committed is None else self._clock() - self._committed
