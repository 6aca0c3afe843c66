"""Lists the source folder and plans its new lines.

Every file is compared with its position (``look_at``). A new file is planned up to its last whole line, and a file that
has grown from its position on. A file that was overwritten ends the job, or is treated as the option says.

A job that keeps running lists the folder in a thread, whenever the query has read all plans.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.file_cleaner import SourceCleaner
from tagstream.streaming.source.file_plans import PlanLog, Positions, Split, batches, make_plan, positions_after
from tagstream.streaming.source.source_file import FileChange, FileForm, FilePosition, SourceFile, is_read, look_at
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")
CHANGED_KEY = "tagstream.source.dfs.changed.files"
Changed = Literal["fail", "again", "ignore"]

_GONE_MS = 7 * 86_400_000  # the position of a removed file that was older than this is dropped
_PLANS, _MANY_PLANS = 100, 1000
_NAMED = 5


@dataclass(frozen=True)
class ListerOptions:
    """``limit``: bytes per batch. ``tasks``: number of tasks per batch. ``changed``: what to do with an overwritten
    file. ``form``: of the files; None for lines of JSON.
    """

    limit: int
    tasks: int
    changed: Changed = "fail"
    form: FileForm | None = None


class FileLister:
    """Finds new lines in ``source`` and plans them in ``log``. ``check`` raises when this run is not the stream's one
    writer any more.

    ``taken``: positions of a query that an earlier version of this program planned; used where the log has none.
    ``unfinished``: files of which nothing is in the table yet. If one is overwritten, for example to correct a bad
    record, it is read from its beginning and added to ``redone``. ``cleaner``: gets the files that are read completely.
    """

    def __init__(
        self,
        source: Storage,
        log: PlanLog,
        options: ListerOptions,
        clock_ms: Callable[[], int],
        check: Callable[[], None] = lambda: None,
        taken: Positions | None = None,
        unfinished: Collection[str] = (),
        cleaner: SourceCleaner | None = None,
    ) -> None:
        self._source = source
        self._log = log
        self._options = options
        self._clock_ms = clock_ms
        self._check = check
        if taken and log.is_new:
            log.keep_positions(taken, 0)
        self._positions, self._newest = log.positions()
        self._looked: dict[str, tuple[SourceFile, int]] = {}
        self._notes: Positions = {}
        self._plans_since = self._files_since = 0
        self._unfinished = frozenset(unfinished)
        self._cleaner = cleaner
        self._whole: list[SourceFile] = []
        self.redone: set[str] = set()
        self.waiting: dict[str, int] = {}

    def look(self) -> int:
        """List the folder and plan new lines. Returns the number of new plans. SourceError when a file can't be used."""
        found = []
        present = set()
        self.waiting.clear()
        self._whole.clear()
        for file in list_files(self._source):
            present.add(file.path)
            split = self._look_at(file)
            if split is not None:
                found.append(split)
        found.sort(key=lambda s: (s.mtime_ms, s.path))
        made = 0
        for batch in batches(found, self._options.limit):
            self._plan(batch)
            made += 1
        if made:
            self._tidy(present)
        if self._cleaner is not None:
            self._cleaner.clean(self._whole)
        return made

    def report_waiting(self) -> None:
        """Log a warning for lines that are not whole yet."""
        if not self.waiting:
            return
        named = [f"{self._source.where(p)} ({n:,} bytes)" for p, n in sorted(self.waiting.items())[:_NAMED]]
        more = len(self.waiting) - len(named)
        LOG.warning(
            "not read, because the last record is not whole yet (a line has no newline, or a compressed stream, a "
            "quoted text, a block or a footer is not complete): %s%s. They are read when they are whole",
            ", ".join(named),
            f" and {more:,} more files" if more else "",
        )

    def _look_at(self, file: SourceFile) -> Split | None:
        known = self._positions.get(file.path)
        if known is not None and (known.size, known.mtime_ms, known.end) == (file.size, file.mtime_ms, file.size):
            self._whole.append(file)
            return None
        before, waiting = self._looked.get(file.path, (None, 0))
        if before == file and not (waiting and self._options.form is not None):
            if waiting:
                self.waiting[file.path] = waiting
            else:  # only blank lines were left
                self._whole.append(file)
            return None
        try:
            look = self._compare(file, known)
            if look.kind == "changed":
                look = self._changed(file, look)
        except FileNotFoundError:  # it was removed after the listing
            return None
        except OSError as e:
            raise SourceError(f"source file {self._source.where(file.path)} can't be read: {e.strerror or e}") from e
        self._looked[file.path] = file, look.waiting
        if look.waiting:
            self.waiting[file.path] = look.waiting
        if look.kind == "touched":
            LOG.warning(
                "source file %s has a new modification time, but the same size, beginning and end: it is not read again",
                self._source.where(file.path),
            )
            assert look.position is not None
            self._notes[file.path] = self._positions[file.path] = look.position
        if look.kind != "new":
            return None
        assert look.position is not None
        return Split(file.path, look.start, look.position.end, file.mtime_ms, look.codec, look.position)

    def _compare(self, file: SourceFile, known: FilePosition | None) -> FileChange:
        return look_at(self._source, file, known, self._clock_ms(), self._options.form)

    def _changed(self, file: SourceFile, look: FileChange) -> FileChange:
        what = f"source file {self._source.where(file.path)} was overwritten: {look.why}"
        if file.path in self._unfinished and file.path not in self.redone:
            LOG.warning("%s. None of its lines is in the table yet: it is read from its beginning", what)
            self.redone.add(file.path)
            return self._compare(file, None)
        if self._options.changed == "fail":
            raise SourceError(
                f"{what}. A file of the source may only grow, or appear complete under a new name (write it to another "
                f"folder, then rename it). To continue, start with {CHANGED_KEY}=again (it is read from its beginning; "
                "records that the table already has are late or change nothing) or =ignore (its present lines count as read)"
            )
        if self._options.changed == "again":
            LOG.warning("%s. It is read from its beginning (%s=again)", what, CHANGED_KEY)
            return self._compare(file, None)
        LOG.warning("%s. Its present lines count as read (%s=ignore)", what, CHANGED_KEY)
        now = self._compare(file, None)
        at = now.position or FilePosition(0, file.size, file.mtime_ms, 0, 0)
        self._notes[file.path] = self._positions[file.path] = at
        return replace(now, kind="same")

    def _plan(self, files: list[Split]) -> None:
        """Store the plan of one batch, with the positions of files that were not planned."""
        number = self._newest + 1
        notes = [Split(path, at.end, at.end, at.mtime_ms, None, at) for path, at in self._notes.items()]
        plan = make_plan(self._source, number, files, self._options.tasks, notes, self._options.form)
        self._check()
        self._log.add(plan)
        self._notes.clear()
        self._positions |= positions_after(plan)
        self._newest = number
        self._plans_since += 1
        self._files_since += len(files)

    def _tidy(self, present: set[str]) -> None:
        """Store the positions from time to time, so that old plans can be removed. Positions of long removed files are
        dropped.
        """
        many = self._files_since * 4 >= len(self._positions) or self._plans_since >= _MANY_PLANS
        if self._plans_since < _PLANS or not many:
            return
        old = self._clock_ms() - _GONE_MS
        self._positions = {p: at for p, at in self._positions.items() if p in present or at.mtime_ms >= old}
        self._looked = {p: seen for p, seen in self._looked.items() if p in present}
        self._log.keep_positions(self._positions, self._newest)
        self._plans_since = self._files_since = 0


def list_files(source: Storage, folder: str = "") -> Iterator[SourceFile]:
    """The files of the source and of its folders, except skipped names. SourceError when the source does not exist."""
    if not folder and not source.exists(""):
        raise SourceError(f"source folder {source.root} does not exist; correct hoodie.streamer.source.dfs.root")
    for entry in source.list(folder):
        if not is_read(entry.name):
            continue
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_dir:
            yield from list_files(source, path)
        else:
            yield SourceFile(path, entry.size, entry.mtime_ms)


_POLL_S = 0.05
_LEAST_S = 0.2  # the shortest time between two listings
_SHARE = 9  # the wait is so many times as long as the last listing: a large folder uses a tenth of one core
_AHEAD_S = 0.5  # before the next batch may begin
_STUCK_S = 5.0
_REPORT_S = 60.0


class Lister(Protocol):
    """What plans a source. ``waiting``: what is not read yet, with a number."""

    waiting: dict[str, int]

    def look(self) -> int:
        """Plan what is new. Returns the number of new plans."""
        ...

    def report_waiting(self) -> None:
        """Log a warning for what is not read yet."""
        ...


class ListerThread:
    """Calls ``lister.look`` until it is closed. :meth:`check` raises its error.

    Plans are made one after the other, like batches. A plan that is made early would lack the lines that appear before
    its batch starts, and a batch that is slower than the listings would be followed by many small ones. ``planned``:
    number of batches that the query finds at its start. ``interval_s``: least time between two batches.
    """

    def __init__(self, lister: Lister, planned: int, interval_s: float) -> None:
        self._lister = lister
        self._planned = planned
        self._interval_s = interval_s
        self._end = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="source-files", daemon=True)
        self._batches: Callable[[], tuple[int, bool]] = lambda: (0, False)

    def start(self, batches: Callable[[], tuple[int, bool]]) -> None:
        """Start to list. ``batches``: returns how many batches the query has begun, and whether one is running."""
        self._batches = batches
        self._thread.start()

    def check(self) -> None:
        """Raise the error of a listing."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop after the running listing."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        reported = looked = moved = time.monotonic()
        pause = _LEAST_S
        before = 0
        warned: dict[str, int] = {}
        while not self._end.wait(_POLL_S):
            now = time.monotonic()
            begun, running = self._batches()
            if begun != before or running:
                before, moved = begun, now
            ready = begun >= self._planned and now >= moved + max(0.0, self._interval_s - _AHEAD_S)
            # A query that was killed may have read two plans in one batch: then fewer batches begin than were counted.
            stuck = now >= moved + self._interval_s + _STUCK_S
            if running or now < looked + pause or not (ready or stuck):
                continue
            try:
                self._planned += self._lister.look()
            except Exception as e:
                self._failure = e
                return
            looked = time.monotonic()
            pause = max(_LEAST_S, _SHARE * (looked - now))
            if looked - reported >= _REPORT_S:
                reported = looked
                if self._lister.waiting != warned:
                    warned = dict(self._lister.waiting)
                    self._lister.report_waiting()
