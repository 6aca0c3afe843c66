"""The sync of the table's catalogue entries with its commits, on a separate thread, so that a commit does not wait for it.

A commit only wakes the thread. One sync covers all commits until then. A failed sync is reported, and tried again with the
next commit or after some time. The cursor in the catalogue shows which commits it lacks, so no commit is missed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from tagstream.catalog.catalog import Catalog, CatalogError
from tagstream.catalog.changes import Cursor, commits_since
from tagstream.catalog.options import SyncOptions
from tagstream.catalog.sync import SyncResult, sync_table
from tagstream.table.errors import TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable

LOG = logging.getLogger("tagstream")
SERVICE = "catalogue sync"
_SHARE = 0.1  # share of the time that the thread may work while batches run
_AGAIN_S = 30.0
_LONGEST_S = 600.0

Report = Callable[[str, int, str | None], None]


class CatalogSync:
    """The syncs of one run. ``report`` is called on the thread, with the service's name, the number of syncs and an error.

    ``monotonic``: seconds.
    """

    def __init__(
        self,
        table: HoodieTable,
        catalogs: Sequence[Catalog],
        options: SyncOptions,
        owner: str,
        report: Report,
        monotonic: Callable[[], float],
    ) -> None:
        self._table, self._catalogs, self._options, self._owner = table, tuple(catalogs), options, owner
        self._report, self._monotonic = report, monotonic
        self._wake, self._end = threading.Event(), threading.Event()
        self._error: TagstreamError | None = None
        self._failures = 0
        self._cursors: dict[str, Cursor | None] = {}
        self._thread = threading.Thread(target=self._run, name="catalogue-sync", daemon=True)

    def start(self) -> None:
        """Begin with the commits that an earlier run has not synced."""
        if self._catalogs:
            self._wake.set()
            self._thread.start()

    def committed(self) -> None:
        """A commit was made. Raises the error of the last sync if errors are not ignored."""
        self._wake.set()
        if self._error is not None and self._options.ignore_errors is False:
            raise self._error

    def finish(self) -> None:
        """There are no more commits: sync once more. Raises the error, unless errors are ignored."""
        if not self._catalogs:
            return
        self.close()
        self._sync()
        if self._error is not None and not self._options.ignore_errors:
            raise self._error

    def close(self) -> None:
        """End the thread after its present call."""
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        for catalog in self._catalogs:
            catalog.close()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._pause_after_error())
            if self._end.is_set():
                return
            self._wake.clear()
            began = self._monotonic()
            self._sync()
            self._end.wait((self._monotonic() - began) / _SHARE)

    def _pause_after_error(self) -> float | None:
        return min(_LONGEST_S, _AGAIN_S * 2 ** (self._failures - 1)) if self._failures else None

    def _sync(self) -> None:
        error: TagstreamError | None = None
        done = 0
        for catalog in self._catalogs:
            try:
                result = sync_table(self._table.reload(), catalog, self._options, self._owner)
                self._cursors[catalog.name] = result.cursor
                _log(result)
                done += 1
            except Exception as e:  # any error: a thread that ended would be silent
                text = str(e) if isinstance(e, TagstreamError | OSError) else f"{type(e).__name__}: {e}"
                error = CatalogError(f"{text}{self._behind(catalog)}")
        if error is not None and self._error is None:
            LOG.warning("%s of table %s failed: %s", SERVICE, self._table.base_path, error)
        self._failures = 0 if error is None else self._failures + 1
        self._error = error
        self._report(SERVICE, done, None if error is None else str(error).split("\n", 1)[0])

    def _behind(self, catalog: Catalog) -> str:
        """How many commits a catalogue lacks that this run has synced with before, for a message."""
        if catalog.name not in self._cursors:
            return ""
        try:
            lacking = commits_since(self._table.timeline(), self._cursors[catalog.name])
        except (TagstreamError, OSError):  # the table cannot be read: perhaps that is the error
            return ""
        return "" if lacking is None else f" ({len(lacking):,} commits behind)"


def _log(result: SyncResult) -> None:
    for entry in result.entries:
        if entry.changed:
            LOG.info(
                "%s: %s %s, partitions: %s added, %s updated, %s dropped",
                result.catalog,
                entry.name,
                entry.action,
                f"{entry.added:,}",
                f"{entry.updated:,}",
                f"{entry.dropped:,}",
            )
