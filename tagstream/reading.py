"""``tagstream.open_table``: read a Hudi table from Python, without Spark or a JVM.

>>> import tagstream
>>> table = tagstream.open_table("/data/tables/orders")  # doctest: +SKIP
>>> table.scan(columns=["id", "amount"], filter="day >= '2026-01-01'").to_pandas()  # doctest: +SKIP
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.read.change_stream import changes_between
from tagstream.table.read.filters import Comparison, bind
from tagstream.table.read.snapshot import scan_snapshot, snapshot_schema
from tagstream.table.schema.schema import META_COLUMNS
from tagstream.table.services.cleaning_plan import check_past, plan_table
from tagstream.table.services.health import Figures, Finding, Limits, figures_of, findings
from tagstream.table.services.options import CleanOptions
from tagstream.table.storage.settings import keep_settings, kept_settings
from tagstream.table.timeline.instant import Instant

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


Moment = str | datetime

_DIGITS = (14, 17)


def open_table(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Table:
    """Open the Hudi table at a path or URL (``s3a://``, ``gs://``, ``abfss://``, ``hdfs://``, ...).

    ``options``: file system settings by Hadoop's names, such as ``{"fs.s3a.endpoint": "http://localhost:9000"}``. They apply
    to this process from then on. Raises TableNotFoundError when there is no table, UnsupportedTableError for a version or
    layout that cannot be read, and ConfigError for a URL of another kind.

    >>> table = open_table("/data/tables/orders")  # doctest: +SKIP
    >>> table.scan().to_arrow().num_rows  # doctest: +SKIP
    """
    if options:
        keep_settings({**kept_settings(), **options}, os.environ)
    return Table(HoodieTable.open(os.fspath(path)))


@dataclass(frozen=True)
class Health:
    """``findings``: what is wrong with a table, each with the key or command that corrects it. ``figures``: measured values.

    >>> for finding in open_table("/data/tables/orders").health().findings:  # doctest: +SKIP
    ...     print(finding.what, "->", finding.remedy)
    """

    findings: tuple[Finding, ...]
    figures: Figures

    @property
    def ok(self) -> bool:
        """Whether there is no finding."""
        return not self.findings


class Table:
    """An existing table. Each read uses its newest state. Nothing is locked or written.

    >>> table = open_table("/data/tables/orders")  # doctest: +SKIP
    >>> table.schema.names  # doctest: +SKIP
    """

    def __init__(self, table: HoodieTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        return f"<tagstream.Table {self.name} at {self.path}: {self.table_type}, version {self.version}>"

    @property
    def path(self) -> str:
        """The table's folder, as a path or URL."""
        return self._table.base_path

    @property
    def name(self) -> str:
        """``hoodie.table.name``."""
        return self._table.config.name

    @property
    def version(self) -> int:
        """The table version: 6, 8 or 9."""
        return self._table.config.version

    @property
    def table_type(self) -> str:
        """``COPY_ON_WRITE`` or ``MERGE_ON_READ``."""
        return self._table.config.table_type

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest commit as Arrow types, without Hudi's own (``_hoodie_...``)."""
        full = _schema(self._table)
        return pa.schema([full.field(name) for name in _user_columns(full)])

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 (the word of pyarrow, polars and DuckDB)
        as_of: Moment | None = None,
        since: Moment | None = None,
    ) -> Scan:
        """Choose what to read. Nothing is read before the result is converted to one of its forms.

        ``columns``: names in the wanted order; Hudi's own (``_hoodie_commit_time``) are allowed. Default: all but those.
        ``filter``: comparisons joined by ``and``: ``day >= '2026-01-01' and state in ('open', 'late') and note is not
        null``. Partitions and files without such rows are not read.
        ``as_of``: read an earlier state: an instant (14 or 17 digits), a date or time in ISO 8601, or a datetime. A time
        without a zone is in the zone of the table's timeline. ``since``: only the rows of writes that were completed after
        this time, in their state now or as of ``as_of``. Deleted rows are not included.

        Raises ConfigError for an unknown column, or a filter or time that cannot be parsed. Raises CleanedPastError when
        the files of ``as_of`` were deleted.

        >>> open_table("/data/tables/orders").scan(["id"], "amount > 10", since="2026-01-01").to_polars()  # doctest: +SKIP
        """
        full, wanted = _schema(self._table), _columns(columns)
        unknown = [name for name in wanted or () if name not in full.names]
        if unknown:
            raise ConfigError(
                f"table {self.name} has no column {', '.join(unknown)}; it has {', '.join(full.names) or 'none'}"
            )
        comparisons = Comparison.parse_all(filter) if filter is not None else []
        bind(comparisons, full)
        times = [
            None if each is None else self._instant(name, each) for name, each in (("as_of", as_of), ("since", since))
        ]
        if times[0] is not None:
            check_past(self._table, self._table.timeline(), times[0])
        return Scan(self._table, wanted, tuple(comparisons), *times)

    def changes(self, since: Moment | None = None, until: Moment | None = None) -> pa.RecordBatchReader:
        """The inserts, updates and deletes of the writes after ``since`` and up to ``until``, as an Arrow stream.

        The columns are ``op`` (``i``, ``u``, ``d``), ``ts_ms`` (the instant of the write), ``before`` and ``after``
        (structs of the table's columns, or null). The times are given as in :meth:`scan`. A row that
        moves to another partition is a delete and an insert. The changes of one write have no order.

        A table with change data capture (``hoodie.table.cdc.enabled``) gives what Hudi's CDC query gives. In other tables
        the changes are inferred from the file slices before and after each write, which reads these files.

        Raises ConfigError for a time that cannot be parsed. Raises MissingChangesError when a write of this time is
        archived, its files were deleted, or its changes were not logged; it names the time from which they can be read.

        >>> for batch in open_table("/data/tables/orders").changes(since="2026-01-31"):  # doctest: +SKIP
        ...     print(batch.column("op"))
        """
        after, last = (
            None if each is None else self._instant(name, each) for name, each in (("since", since), ("until", until))
        )
        schema, parts = changes_between(self._table, after, last, partial(check_past, self._table))
        return pa.RecordBatchReader.from_batches(schema, (batch for part in parts for batch in part.to_batches()))

    def timeline(self) -> tuple[Instant, ...]:
        """The actions on the active timeline, oldest first: ``time``, ``action``, ``state``, ``completion_time``.

        >>> [action.time for action in open_table("/data/tables/orders").timeline() if action.is_write]  # doctest: +SKIP
        """
        return self._table.timeline().instants

    def health(self, now_ms: int | None = None) -> Health:
        """What is wrong with the table, as in ``tagstream table health``. ``now_ms``: present time, epoch milliseconds.

        >>> open_table("/data/tables/orders").health().ok  # doctest: +SKIP
        """
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        table = listed_by_metadata(self._table)
        timeline, plan = table.timeline(), plan_table(table, CleanOptions(), now, due=False)
        figures = figures_of(table, timeline, now, plan.size if plan is not None else 0)
        return Health(tuple(findings(table, timeline, figures, now, Limits())), figures)

    def _instant(self, name: str, moment: Moment) -> str:
        """An instant time of 17 digits. One of 14 digits is the end of its second, as in Hudi."""
        text, utc = str(moment), self._table.config.timezone_utc
        if text.isdigit() and len(text) in _DIGITS:
            return (text + "999")[: max(_DIGITS)]
        try:
            found = moment if isinstance(moment, datetime) else datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(
                f"{name} {text!r} is not a time: give an instant of the timeline (17 digits), a date or time in ISO 8601, "
                'for example "2026-01-31T18:00:00Z", or a datetime'
            ) from None
        if found.tzinfo is None:
            return f"{found:%Y%m%d%H%M%S}{found.microsecond // 1000:03d}"
        return instant_from_ms(int(found.timestamp() * 1000), utc)


class Scan:
    """The selection of :meth:`Table.scan`. Each conversion reads the table.

    It is also an Arrow stream: libraries that accept one (``polars.from_arrow``, DuckDB, pyarrow, pandas) accept a scan.
    """

    def __init__(
        self,
        table: HoodieTable,
        columns: Sequence[str] | None,
        comparisons: Sequence[Comparison],
        as_of: str | None,
        since: str | None,
    ) -> None:
        self._table = table
        self._columns, self._comparisons = columns, comparisons
        self._as_of, self._since = as_of, since

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows in batches that are read one after another, so the table may be larger than memory.

        >>> for batch in open_table("/data/tables/orders").scan().to_batches():  # doctest: +SKIP
        ...     print(batch.num_rows)
        """
        columns = self._columns
        if columns is None:
            columns = _user_columns(_schema(self._table, self._as_of))
        schema, parts = scan_snapshot(
            self._table, columns, as_of=self._as_of, filters=self._comparisons, since=self._since
        )
        return pa.RecordBatchReader.from_batches(schema, _batches(schema, parts))

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.to_batches().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame, by pyarrow's type rules."""
        return self.to_arrow().to_pandas()  # type: ignore[no-any-return]

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars frame; ConfigError when polars is not installed."""
        return _installed("polars").from_arrow(self.to_arrow())  # type: ignore[no-any-return]

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a relation of a DuckDB connection (default: DuckDB's own); ConfigError when it is not installed.

        >>> orders = open_table("/data/tables/orders").scan().to_duckdb()  # doctest: +SKIP
        >>> orders.aggregate("state, sum(amount)")  # doctest: +SKIP
        """
        return (connection or _installed("duckdb")).from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_batches().__arrow_c_stream__(requested_schema)


def _schema(table: HoodieTable, as_of: str | None = None) -> pa.Schema:
    """All columns, Hudi's own first."""
    timeline = table.timeline()
    return snapshot_schema(table, timeline, table.view(timeline, as_of))


def _user_columns(full: pa.Schema) -> list[str]:
    return [name for name in full.names if name not in META_COLUMNS]


def _batches(schema: pa.Schema, parts: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from part.cast(schema).to_batches()


def _columns(given: Sequence[str] | None) -> list[str] | None:
    if given is None:
        return None
    names = [given] if isinstance(given, str) else list(given)
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names:
        raise ConfigError("columns is empty; omit it for all columns")
    if twice:
        raise ConfigError(f"columns: {', '.join(twice)} is there twice; name each column once")
    return names


def _installed(package: str) -> Any:
    try:
        return __import__(package)
    except ImportError:
        raise ConfigError(
            f"{package} is not installed: pip install {package}, or use to_arrow() or to_pandas()"
        ) from None
