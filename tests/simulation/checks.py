"""What must hold after every step; each check gives the differences that it has found, in words."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from tagstream.cli.main import main as tagstream
from tagstream.table.errors import MissingChangesError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.change_stream import changes_between
from tagstream.table.read.filters import Comparison, Op
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.cleaning_plan import last_clean
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.instant import CLEAN
from tagstream.table.timeline.timeline import Timeline
from tests.simulation.model import Entry, Ident, Unknown
from tests.simulation.values import BY_NAME
from tests.simulation.world import World
from tests.support.hudi_rs import read_table
from tests.support.rings import misplaced

# A part of a clean, of a partition's delete, of a service: the next run, or the same command once more, ends or undoes it.
_WHAT_A_FAULT_LEAVES = re.compile(
    "^there are markers of |^unfinished replacecommit|^metadata: partition .* is listed and missing"
)
_MOST = 6  # differences of a kind that are shown
_OPS = (Op.EQ, Op.LT, Op.GT, Op.GE, Op.LE, Op.IS_NULL, Op.IS_NOT_NULL, Op.NE)
Rows = dict[Ident, dict[str, Any]]


def quick(world: World) -> list[str]:
    """The rows by our own reader; and that no commit that the oracle knows of has gone."""
    found = [*world.problems]
    world.problems.clear()
    if not world.has_table or not world.model.log:
        return found
    table = world.table()
    found += _first(_gone(world, table))
    found += _first(differences(world, "ours", read_snapshot(table).to_pylist(), expected(world)))
    return found


def deep(world: World) -> list[str]:
    """Everything."""
    if not world.has_table or not world.model.log:
        return []
    table, want = world.table(), expected(world)
    found: list[str] = []
    if hudi_rs_can(world, table):
        found += _first(differences(world, "hudi-rs", read_table(world.path).to_pylist(), want))
    # What a driver that woke up has staged, or a service whose last call failed, goes when the next run begins.
    # With a lock, no stream waits for a young write. A run without a batch does not end a clean.
    pending = any(i.action == CLEAN and not i.is_completed for i in table.timeline().instants)
    later = world.woken or bool(world.faults) or world.settings.streams > 1 or pending
    problems = [*validate(table), *(f"metadata: {text}" for text in validate_metadata(table))]
    problems = [text for text in problems if not (later and _WHAT_A_FAULT_LEAVES.search(text))]
    found += [f"validate: {problem}" for problem in _first(problems)]
    found += _filters(world, table, want)
    found += _past(world, table)
    found += [f"rings: {text}" for text in _first(_rings(world))]
    found += _first(_changes(world, table))
    found += _first(_followed(world))
    return found + _index(world)


def expected(world: World) -> Rows:
    """The rows that the table must have."""
    return world.model.rows(world.model.now, world.settings.by_partition)


def differences(world: World, who: str, rows: Iterable[dict[str, Any]], want: Rows) -> Iterator[str]:
    """How rows that a reader gave differ from those that are right."""
    got: Rows = {}
    for row in rows:
        ident = _ident(world, row)
        if ident in got:
            yield f"{who}: {ident} is there twice"
        got[ident] = row
    for ident in sorted(want.keys() - got.keys(), key=str):
        yield f"{who}: {ident} is lost"
    for ident in sorted(got.keys() - want.keys(), key=str):
        yield f"{who}: {ident} must not be there (commit {got[ident].get('_hoodie_commit_time')})"
    for ident in sorted(want.keys() & got.keys(), key=str):
        for name, value in want[ident].items():
            found = got[ident].get(name)
            found = BY_NAME[name].value(found) if name in BY_NAME else found
            if found != value and not isinstance(value, Unknown):
                yield f"{who}: {ident}.{name} is {found!r:.80}, {value!r:.80} is right"


def _ident(world: World, row: dict[str, Any]) -> Ident:
    return (row["_hoodie_partition_path"], row["id"]) if world.settings.by_partition else row["id"]


def hudi_rs_can(world: World, table: HoodieTable) -> bool:
    """Whether hudi-rs reads such a table rightly (its limits: docs/reference/compatibility.md)."""
    told = world.settings
    if told.second_ordering:  # it knows one ordering field
        return False
    if told.layout == "custom" and table.config.version >= 8:  # it takes part:SIMPLE for the name of a field
        return False
    grown = world.columns != told.columns
    if (told.partial or grown) and table.config.is_merge_on_read and "nest" in world.columns:
        return False  # a list in a log that lacks columns of the table
    timeline = table.timeline()
    if table.config.version < 8 and timeline.pending_compactions:  # it passes over the logs of a planned slice
        return False
    if table.config.version >= 8 and table.config.is_merge_on_read:
        view = table.view(timeline)
        slices = (s for partition in view.partitions() for s in view.latest_merged_slices(partition))
        logs_alone = [s for s in slices if s.base_path is None]
        # Where a metadata table lists them it passes over these groups; else over their logs of archived commits.
        archived = any(timeline.is_archived(log.time) for s in logs_alone for log in s.log_files)
        return not archived and not (logs_alone and table.config.metadata_partitions)
    return True


def _rings(world: World) -> Iterator[str]:
    """Records outside of their buckets. A key of two fields is hashed by its values, which this check does not know."""
    if world.settings.rings and not world.settings.two_keys:
        for name, key in misplaced(Path(world.path))[1]:
            yield f"{key} is in {name}, which is not its bucket"


def _gone(world: World, table: HoodieTable) -> Iterator[str]:
    timeline = table.timeline()
    there = {i.time for i in timeline.completed_writes}
    for entry in world.model.log:
        if entry.instant not in there and not timeline.is_archived(entry.instant):
            yield f"commit {entry.instant} is gone from the timeline"


def _filters(world: World, table: HoodieTable, want: Rows) -> list[str]:
    """Filtered reads, which skip files by statistics where the metadata table has some."""
    found: list[str] = []
    there = read_snapshot(table).column_names  # a column of the schema file comes with the next batch
    names = [name for name in world.columns if name not in ("nest", "flg") and name in there]
    for name in names:
        column, op = BY_NAME[name], world.random.choice(_OPS)
        there_now = [row[name] for row in want.values() if row[name] is not None]
        if any(isinstance(value, Unknown) for value in there_now):
            continue
        if there_now and world.random.random() < 0.6:  # the ends of the statistics are values of rows
            value = world.random.choice(there_now)
        else:
            plain = (column.plain(world.random.randrange(3000)) for _ in range(3))
            value = column.value(world.random.choice([*column.edges, *plain]))
        if value == "NaN":
            continue
        rows = read_snapshot(
            table, filters=[Comparison(name, op, None if op in (Op.IS_NULL, Op.IS_NOT_NULL) else value)]
        )
        got = {_ident(world, row) for row in rows.to_pylist()}
        right = {ident for ident, row in want.items() if _holds(op, row[name], value)}
        if got != right:
            lacks, more = (sorted(keys, key=str)[:3] for keys in (right - got, got - right))
            found.append(f"filter {name} {op} {value!r:.40}: lacks {lacks}, has {more} too")
    return found


def _holds(op: Op, found: Any, value: Any) -> bool:
    if op is Op.IS_NULL:
        return found is None
    if op is Op.IS_NOT_NULL:
        return found is not None
    if found is None:
        return False
    if found == "NaN":  # unequal to every number, and neither less nor greater (table.skipping.filters)
        return op is Op.NE
    one, other = (found.encode(), value.encode()) if isinstance(found, str) else (found, value)
    answers = {Op.EQ: one == other, Op.NE: one != other, Op.LT: one < other, Op.GT: one > other}
    return (answers | {Op.GE: one >= other, Op.LE: one <= other})[op]


def _past(world: World, table: HoodieTable) -> list[str]:
    """Reads as of earlier writes whose files the cleaner has kept."""
    timeline = table.timeline()
    cleaned = last_clean(table.storage, timeline)
    if world.past_is_lost or any(i.action == "clean" for i in timeline.pending):  # it has deleted some already
        return []
    earliest = cleaned.earliest if cleaned is not None and cleaned.earliest else ""
    known = [e for e in _whole(world, timeline) if e.instant >= earliest]
    found = []
    for entry in world.random.sample(known, min(2, len(known))):
        rows = read_snapshot(table, as_of=entry.instant).to_pylist()
        want = world.model.rows(entry, world.settings.by_partition)
        found += [f"as of {entry.instant}: {text}" for text in differences(world, "ours", rows, want)][:3]
    return found


def _whole(world: World, timeline: Timeline) -> list[Entry]:
    """The active writes at which readers agree on what was there: all others are before or after them by instant and by
    completion alike. Archived ones count, too: their rows are in the slices that are read."""
    there = {i.time for i in timeline.completed_writes}
    times = [e.instant for e in world.model.log]
    known = [e for e in world.model.log if e.exact and e.instant in there]
    return [e for e in known if all((t <= e.instant) == (times.index(t) <= times.index(e.instant)) for t in times)]


def _changes(world: World, table: HoodieTable) -> Iterator[str]:
    """The changes since an earlier write make its rows those of now."""
    told, timeline = world.settings, table.timeline()
    known = _whole(world, timeline)
    # A change does not say in which partition its row is; and what a database has not sent is not known at once.
    if not told.change_files or told.by_partition or told.changes or not known:
        return
    entry = world.random.choice(known)
    instant = next(i for i in timeline.completed_writes if i.time == entry.instant)
    live = world.model.rows(entry, told.by_partition)
    changed: dict[Ident, dict[str, Any]] = {}
    try:
        rows = [
            r for found in changes_between(table, instant.completion_time or instant.time)[1] for r in found.to_pylist()
        ]
    except MissingChangesError:  # another writer's, which logs none; archived, or cleaned
        return
    writes = {ts: at for at, ts in enumerate(dict.fromkeys(row["ts_ms"] for row in rows))}
    for row in sorted(rows, key=lambda r: (writes[r["ts_ms"]], r["op"] != "d")):
        op, ident = row["op"], (row["after"] or row["before"])["id"]
        if (ident in live) == (op == "i"):
            there = "there" if op == "i" else "not there"
            yield f"changes since {entry.instant}: {op} of {ident} in {row['ts_ms']}, which is {there}"
        changed.pop(ident, None)
        live.pop(ident, None)
        if op != "d":
            live[ident] = changed[ident] = row["after"]
    want = {ident: _values(row) for ident, row in expected(world).items()}
    for ident in sorted(want.keys() ^ live.keys()):
        yield f"changes since {entry.instant}: {ident} is {'missing' if ident in want else 'there too'}"
    for ident in sorted(live.keys() & want.keys() - changed.keys()):
        if _values(live[ident]) != want[ident]:
            yield f"changes since {entry.instant}: no change of {ident}"
    here = {ident: want[ident] for ident in want if ident in changed}
    yield from differences(world, f"changes since {entry.instant}", changed.values(), here)


def _followed(world: World) -> Iterator[str]:
    """A stream from the table has its rows."""
    if world.settings.by_partition or world.settings.changes:  # as in :func:`_changes`
        return
    wrong, is_now = world.follower.look()
    yield from wrong
    if is_now:
        want = {ident: _values(row) for ident, row in expected(world).items()}
        yield from differences(world, "a stream from the table", world.follower.rows.values(), want)


def _values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name in BY_NAME}


def _index(world: World) -> list[str]:
    """The state index against the rows, once the stream has run over all that the table has."""
    if not world.has_state_index or not world.index_is_whole:
        return []
    out, told = io.StringIO(), io.StringIO()
    with redirect_stderr(told):
        argv = ["index", "verify", "--target-base-path", str(world.path), "--checkpoint-dir", str(world.checkpoint)]
        code = tagstream(argv, out)
    return [] if code == 0 else [f"index verify: {(out.getvalue() + told.getvalue())[-600:]}"]


def _first(problems: Iterable[str]) -> list[str]:
    found = list(problems)
    return found[:_MOST] + ([f"and {len(found) - _MOST} more"] if len(found) > _MOST else [])
