"""A writer and the rollback of its instant at the same time: whatever comes when, all of the write is there or nothing.

Each one stands still before every one of its operations on the storage in turn while the other one runs. The writer asks
nobody whether it still is the one writer, as if it stood still right after it had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.rollback import resume_rollbacks, rollback, withdraw
from tagstream.table.services.validate import validate
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.write import commit
from tagstream.table.write.markers import has_markers, is_staged
from tests.table.stepping import Stepping
from tests.table.writer import SCHEMA, CrashError, Writer, row

TYPES = [COPY_ON_WRITE, MERGE_ON_READ]
HOW = ["rolled back", "withdrawn"]
STEPS = 400  # more than either has


class Race:
    """A table with one commit, and a second one whose files are staged. ``finish`` is the rest of the driver's work."""

    def __init__(self, folder: Path, table_type: str, how: str) -> None:
        self._how = how
        self.writer = writer = Writer.create(folder, table_type)
        writer.write([row(n, f"p{n % 2}", 1) for n in range(6)])
        self.old = dict(writer.live)
        rows = [row(n, f"p{n % 3}", 2) for n in range(8)]
        self.new = {**self.old, **{r["id"]: r for r in rows}}
        statuses: list[WriteStatus] = []
        keep = commit.publish_files

        def staged(_: object, __: str, found: list[WriteStatus]) -> None:
            statuses.extend(found)
            raise CrashError

        commit.publish_files = staged  # type: ignore[assignment]
        try:
            with pytest.raises(CrashError):
                writer.write(rows)
        finally:
            commit.publish_files = keep
        self.statuses = statuses
        (self.failed,) = writer.table.timeline().pending_writes

    def finish(self, before: Callable[..., None] = lambda *_: None) -> bool:
        """Publish files and commit; False when that is refused."""
        table = replace(self.writer.table, storage=Stepping(self.writer.table.storage, before))
        metadata = CommitMetadata.build(self.statuses, {}, table.config.create_schema or "")
        try:
            commit.publish_files(table, self.failed.time, self.statuses)
            commit.complete(table, self.failed.time, self.failed.action, metadata)
        except InstantConflictError:
            return False
        return True

    def roll_back(self, before: Callable[..., None] = lambda *_: None) -> bool:
        """Roll the write back; False when that is refused."""
        table = replace(self.writer.table, storage=Stepping(self.writer.table.storage, before))
        try:
            if self._how == "withdrawn" and withdraw(table, self.failed.time):
                return True
            rollback(table, self.failed.time, self.writer.instant())
        except InstantConflictError:
            return False
        return True

    def check(self, *, committed: bool) -> None:
        table = self.writer.table
        if not committed:
            timeline = table.timeline()
            assert [i for i in timeline.instants if i.time == self.failed.time] == []
            present = set(table.storage.walk_files(""))
            assert not present & {status.stat.path for status in self.statuses}, "files of the write are left"
        sweep(table)
        assert validate(table) == []
        rows = read_snapshot(table, SCHEMA.names).to_pylist()
        assert {r["id"]: r for r in rows} == (self.new if committed else self.old)
        assert len(rows) == len(self.new if committed else self.old)


class At:
    """Does something before operation number ``step``, once."""

    def __init__(self, step: int, action: Callable[[], bool]) -> None:
        self.step, self.action = step, action
        self.count = 0
        self.result: bool | None = None

    def __call__(self, *_: str) -> None:
        self.count += 1
        if self.count == self.step:
            self.result = self.action()


@pytest.mark.extended("more races of the same kind")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_driver_that_stands_still_while_it_is_rolled_back(table_type: str, how: str, tmp_path: Path) -> None:
    for step in range(1, STEPS):
        race = Race(tmp_path / str(step), table_type, how)
        at = At(step, race.roll_back)
        committed = race.finish(at)
        if at.result is None:
            break  # it has no more operations
        race.check(committed=committed)
        assert committed != at.result
    assert 10 < step < STEPS - 1


@pytest.mark.extended("more races of the same kind")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_rollback_that_stands_still_while_the_driver_goes_on(table_type: str, how: str, tmp_path: Path) -> None:
    for step in range(1, STEPS):
        race = Race(tmp_path / str(step), table_type, how)
        at = At(step, race.finish)
        rolled_back = race.roll_back(at)
        if at.result is None:
            break
        race.check(committed=at.result)
        assert rolled_back != at.result
    assert 10 < step < STEPS - 1


@pytest.mark.extended("more kinds of races")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_driver_that_publishes_files_while_it_is_rolled_back(table_type: str, how: str, tmp_path: Path) -> None:
    """Half of its files have their names when it stops; the rollback dies at each of its operations, and is finished."""
    for step in range(1, STEPS):
        race = Race(tmp_path / str(step), table_type, how)
        table, statuses = race.writer.table, race.statuses
        with pytest.raises(CrashError):
            dying = replace(table, storage=Stepping(table.storage, _dies_at_file(len(statuses) // 2)))
            commit.publish_files(dying, race.failed.time, statuses)
        at = At(step, _die)
        try:
            race.roll_back(at)
            break
        except CrashError:
            pass
        assert not race.finish()
        resume_rollbacks(table)
        if table.timeline().pending_writes:
            race.roll_back()
        race.check(committed=False)
    assert 10 < step < STEPS - 1


def _die() -> bool:
    raise CrashError


def _dies_at_file(number: int) -> Callable[..., None]:
    count = 0

    def before(name: str, *rels: str) -> None:
        nonlocal count
        count += name == "publish" and is_staged(rels[0])
        if count > number:
            raise CrashError

    return before


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("published", [False, True])
def test_a_withdrawn_write_leaves_nothing_on_the_timeline(table_type: str, published: bool, tmp_path: Path) -> None:
    race = Race(tmp_path, table_type, "withdrawn")
    table = race.writer.table
    before = {i for i in table.timeline().instants if i.time != race.failed.time}
    if published:
        commit.publish_files(table, race.failed.time, race.statuses)
    assert withdraw(table, race.failed.time)
    assert set(table.timeline().instants) == before
    assert not has_markers(table.storage, race.failed.time)
    race.check(committed=False)


def test_a_write_by_another_writer_is_not_withdrawn(tmp_path: Path) -> None:
    """It has no staged files: what it published is found by a rollback."""
    race = Race(tmp_path, COPY_ON_WRITE, "withdrawn")
    table = race.writer.table
    table.storage.replace(table.instant_path(race.failed), b"{}")
    assert not withdraw(table, race.failed.time)
    assert table.timeline().pending_writes == (race.failed,)


def test_a_completed_write_is_not_withdrawn(tmp_path: Path) -> None:
    race = Race(tmp_path, COPY_ON_WRITE, "withdrawn")
    assert race.finish()
    with pytest.raises(InstantConflictError, match="is completed"):
        withdraw(race.writer.table, race.failed.time)
    race.check(committed=True)
