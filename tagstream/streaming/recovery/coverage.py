"""Which commits of the table the index covers. Rows of a commit that it lacks would be written a second time.

This is checked before a query starts. The index covers the commits of its load, those of its catch-ups, and the
stream's own commits up to the batch of Spark's checkpoint. The index must catch up with other commits on the timeline.
A covered commit that is missing on the timeline was removed by a restore. The write profiles of the checkpoint's runs
say which instant a run began for a batch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tagstream.state.batch_manifest import manifest_names, read_unless_damaged
from tagstream.state.checkpoint import MANIFESTS, PROFILES
from tagstream.state.durable_files import batch_of
from tagstream.state.index_loads import complete_catch_ups, read_marker
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.commit_record import CommitRecord, digest, parse
from tagstream.streaming.batch.spark_checkpoint import newest_batch, query_id, raw_offset, read_spark_batch
from tagstream.streaming.batch.tag import profile_name
from tagstream.streaming.recovery.foreign_commits import is_of_another_stream
from tagstream.streaming.recovery.takeover import read_begins
from tagstream.table.errors import TableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import Storage, each
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import RESTORE, Instant
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.write_context import WriteProfile

# Number of this stream's commits that are checked for their predecessor: after an archiving few commits are left.
_TRIES = 8
RETAINED_BATCHES = 100  # Spark's default of spark.sql.streaming.minBatchesToRetain


def is_begun_here(query_folder: Storage, query_id: str, batch_id: int, instant: str) -> bool:
    """Whether a run of this checkpoint has begun ``instant`` for this batch. ``query_folder``: the query's folder.

    A run writes a profile once Spark has planned the batch, and Spark plans a batch only once in a checkpoint. So the
    instant then contains exactly this batch. A profile that cannot be read proves nothing.
    """
    profiles = query_folder.below(PROFILES)
    of_batch = profile_name(batch_id, 0).partition(".")[0]
    return any(
        (pinned := _read(profiles, name)) is not None
        and pinned.mode == "process"  # the profile of a replay names an instant that another writer may have begun
        and (pinned.query_id, pinned.batch_id, pinned.instant) == (query_id, batch_id, instant)
        for name in profiles.names("")
        if name.partition(".")[0] == of_batch
    )


def _read(profiles: Storage, name: str) -> WriteProfile | None:
    try:
        return WriteProfile.from_json(profiles.read(name).decode(), profiles.where(name))
    except (FileNotFoundError, TableError, UnicodeDecodeError):
        return None


@dataclass(frozen=True)
class CheckpointState:
    """Spark's query id, its newest planned batch and its newest finished batch; None where there is none yet."""

    query_id: str | None
    planned: int | None
    finished: int | None

    @staticmethod
    def read(query_folder: Storage) -> CheckpointState:
        """Read them from Spark's folders in the query's folder."""
        return CheckpointState(
            query_id(query_folder), newest_batch(query_folder, "offsets"), newest_batch(query_folder, "commits")
        )


@dataclass(frozen=True)
class IndexPlace:
    """The index of a query, as of one index load. ``index_load``: the number of that load.

    ``query_folder``: the query's folder. ``retain_batches``: the manifests of so many newest batches all exist.
    ``files``: the source is a folder of files, not Kafka. ``pull``: a pull-type index, which looks keys up in the
    table and never has to catch up. ``resuming``: a new query will read records again whose rows another writer removed.
    ``rows``: the source is a DataFrame. ``disjoint``: other streams' batches have none of its keys.
    """

    query_folder: Storage
    layout: StateLayout
    index_load: int
    retain_batches: int
    files: bool
    stream_id: str = ""
    pull: bool = False
    resuming: bool = False
    rows: bool = False
    disjoint: bool = False

    def leaves_out(self, metadata: CommitMetadata) -> bool:
        """Whether the index need not have a commit: it is another stream's, which has other keys, or a compaction."""
        return self.disjoint and (metadata.is_compaction or is_of_another_stream(metadata, self.stream_id))

    @property
    def manifests(self) -> Storage:
        """Folder of the batch manifests."""
        return self.query_folder.below(MANIFESTS)


@dataclass(frozen=True)
class Coverage:
    """How the index and the timeline differ. Instants are sorted, oldest first.

    `uncovered`: completed, but not in the index. `lost`: own commits that the index has and the timeline does not have
    any more; archived ones do not count. The commit at whose end the query began to read counts as an own one.
    `vanished`: the same of other writers' commits. `loaded`: commits of the index load and of its catch-ups.

    `batches`: commits of batches that Spark has planned and not finished, by batch id. They are replays if the same
    batch comes again. Only commits that this checkpoint made count, by its manifest or its write profile. A commit of a
    newer copy of the checkpoint does not count: the copy may have put other rows into the batch with this number, and
    deletes of rows that the table did not have are recorded only in the copy's index. `knows_any`: the index has some
    commit of the table, archived or not.
    """

    uncovered: tuple[str, ...]
    lost: tuple[str, ...]
    vanished: tuple[str, ...]
    loaded: frozenset[str]
    batches: dict[int, tuple[str, CommitRecord]]
    knows_any: bool = field(default=False, compare=False)


def assess(index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState) -> Coverage:
    """Compare the index of a checkpoint with the table's timeline. IndexDamagedError where a file of the index is
    damaged.
    """
    by_index_load = _index_load_instants(index)
    loaded = by_index_load | {
        time for catch_up in complete_catch_ups(index.layout, index.index_load) for time in catch_up.instants
    }
    known = finished_instants(index, state)
    begins = begins_after(index, state)
    present = frozenset(i.time for i in timeline.completed_writes)
    counted = loaded | known.keys() | begins
    gone = {time for time in counted if time not in present and not timeline.is_archived(time)}
    gone |= _undone_before_start(table, timeline, counted)
    lost = {time for time in gone if time in known or time in begins}
    uncovered, batches = _sort_out(index, table, timeline, state, by_index_load, loaded, known)
    older, archived = _archived(index, table, timeline, state, by_index_load, loaded, known)
    return Coverage(
        (*older, *uncovered),
        tuple(sorted(lost)),
        tuple(sorted(gone - lost)),
        loaded,
        {**archived, **batches},
        bool(loaded or known),
    )


def _archived(
    index: IndexPlace,
    table: HoodieTable,
    timeline: Timeline,
    state: CheckpointState,
    by_index_load: frozenset[str],
    loaded: frozenset[str],
    known: Collection[str],
) -> tuple[tuple[str, ...], dict[int, tuple[str, CommitRecord]]]:
    """The uncovered commits and the replays among commits that were archived after the newest one of the index.

    Another program may archive them between two runs. The archive is read only when all commits of the index are
    archived, and only from the newest of these on.
    """
    unfinished = _last(state.finished) < _last(state.planned)
    floor = max(known if unfinished and known else (*loaded, *known), default=None)
    if floor is None or not timeline.is_archived(floor):
        return (), {}
    uncovered: set[str] = set()
    batches: dict[int, tuple[str, CommitRecord]] = {}
    for action in table.archived_writes():
        if action.time <= floor:
            break
        if not timeline.is_archived(action.time):
            continue  # an interrupted archiving: the instant is still on the active timeline
        metadata = CommitMetadata.from_bytes(action.metadata or b"", f"archived instant {action.time}")
        record, time = parse(metadata.extra), action.time
        own = record is not None and _is_own(index, record, time, state)
        if record is not None and _is_replay(index, record, time, state, by_index_load, own=own):
            batches.setdefault(record.batch_id, (time, record))
        if not own and time not in loaded and time not in known and not index.leaves_out(metadata):
            uncovered.add(time)
    return tuple(sorted(uncovered)), batches


def _sort_out(
    index: IndexPlace,
    table: HoodieTable,
    timeline: Timeline,
    state: CheckpointState,
    by_index_load: frozenset[str],
    loaded: frozenset[str],
    known: Collection[str],
) -> tuple[tuple[str, ...], dict[int, tuple[str, CommitRecord]]]:
    """The uncovered commits and those of unfinished batches on the active timeline. Reads as few commit files as
    possible.

    It reads from the newest commit back. An own commit says in ``follows`` what the index covered at that time. Where
    these are exactly the commits before it, no older commit is read. So the work grows with what other writers have
    written since.
    """
    writes = timeline.completed_writes
    unfinished = _last(state.finished) < _last(state.planned)
    uncovered: list[str] = []
    batches: dict[int, tuple[str, CommitRecord]] = {}
    tries = _TRIES
    for number in reversed(range(len(writes))):
        instant = writes[number]
        time = instant.time
        asked = unfinished if time in loaded else time not in known or tries > 0
        record = _record(table, timeline, instant, state) if asked else None
        own = record is not None and _is_own(index, record, time, state)
        if record is not None and _is_replay(index, record, time, state, by_index_load, own=own):
            batches.setdefault(record.batch_id, (time, record))
        is_new = not own and time not in loaded and time not in known
        if is_new and not (index.disjoint and index.leaves_out(timeline.metadata(table.storage, instant))):
            uncovered.append(time)
        if record is not None and own and tries > 0 and not _is_unfinished(record, state):
            if record.follows == digest(i.time for i in writes[:number]):
                break
            tries -= 1
    return tuple(reversed(uncovered)), batches


def _record(table: HoodieTable, timeline: Timeline, instant: Instant, state: CheckpointState) -> CommitRecord | None:
    """This project's record of a commit of this query; None for all others, most of which are not parsed."""
    if state.query_id is None:
        return None
    metadata = timeline.metadata_with(table.storage, instant, (state.query_id,))
    return None if metadata is None else parse(metadata.extra)


def _index_load_instants(index: IndexPlace) -> frozenset[str]:
    """The commits that the index has from its load."""
    marker = read_marker(index.layout, index.index_load) if index.index_load else None
    return frozenset(marker.covered if marker is not None else ())


def _is_unfinished(record: CommitRecord, state: CheckpointState) -> bool:
    """Whether Spark has planned the batch of this commit and not finished it."""
    return record.query_id == state.query_id and _last(state.finished) < record.batch_id <= _last(state.planned)


def _undone_before_start(table: HoodieTable, timeline: Timeline, known: Collection[str]) -> frozenset[str]:
    """Those of ``known`` that are older than the active timeline, but were removed by a restore and not archived.

    The active timeline may begin after its savepoints. When a table was restored to a savepoint and written again,
    removed writes look as if they were archived. A restore removes the newest writes. So the archive is read only where
    the newest of ``known`` is not on the timeline.
    """
    newest = max(known, default=None)
    if newest is None or timeline.find(newest) is not None or not timeline.is_archived(newest):
        return frozenset()
    there = {i.time for i in timeline.completed_writes}
    undone = {time for time in _restored_away(table, timeline) if time in known}
    kept = (a.time for a in table.archived_writes() if a.time in known and a.time not in undone)
    floor = next(kept, "")
    return frozenset(time for time in known if time > floor and time not in there)


def _restored_away(table: HoodieTable, timeline: Timeline) -> frozenset[str]:
    """The writes that the restores on the timeline removed."""
    found: set[str] = set()
    for instant in timeline.instants:
        if instant.action == RESTORE and instant.is_completed:
            data = table.storage.read(f"{table.config.timeline_folder}/{instant.file_name()}")
            found.update(read_record(data, instant.file_name()).get("instantsToRollback") or ())
    return frozenset(found)


def _is_own(index: IndexPlace, record: CommitRecord, time: str, state: CheckpointState) -> bool:
    """Whether the changes of a commit are in the index of this checkpoint, or will be after a replay."""
    if state.query_id is None or record.query_id != state.query_id:
        return False
    manifest = read_unless_damaged(index.manifests, record.manifest)
    finished = _last(state.finished)
    if record.batch_id <= finished:
        if manifest is None:  # garbage collection has removed it, if the batch is old enough
            return record.batch_id <= finished - index.retain_batches
        return manifest.instant == time
    if manifest is None or manifest.instant != time or raw_offset(index.query_folder, record.batch_id) is None:
        return False
    return record.same_batch(read_spark_batch(index.query_folder, record.batch_id, files=index.files, rows=index.rows))


def _is_replay(
    index: IndexPlace,
    record: CommitRecord,
    time: str,
    state: CheckpointState,
    by_index_load: frozenset[str],
    *,
    own: bool,
) -> bool:
    """Whether the commit is of an unfinished batch that this checkpoint made.

    Its manifest proves that (``own``). So does its write profile, where the manifest is lost and the index was loaded
    with the commit's rows. Number and offsets alone prove nothing: a newer copy of the checkpoint has counted the same
    batches, and offsets of files are counters, too.
    """
    if not _is_unfinished(record, state):
        return False
    return own or (time in by_index_load and is_begun_here(index.query_folder, record.query_id, record.batch_id, time))


def finished_instants(index: IndexPlace, state: CheckpointState) -> dict[str, int]:
    """Instant -> batch number of the finished batches whose manifests still exist."""
    if state.query_id is None:
        return {}
    manifests = index.manifests
    names = [n for n in manifest_names(manifests) if (b := batch_of(n)) is not None and b <= _last(state.finished)]
    read = each(lambda name: read_unless_damaged(manifests, name), names)
    return {m.instant: m.batch_id for m in read if m is not None and m.query_id == state.query_id and m.instant}


def begins_after(index: IndexPlace, state: CheckpointState) -> frozenset[str]:
    """The commit at whose end the query began to read. Empty without a query, and where the query did not begin at a
    commit's end.
    """
    begins = None if state.query_id is None else read_begins(index.query_folder)
    return frozenset() if begins is None else frozenset({begins})


def _last(batch: int | None) -> int:
    return -1 if batch is None else batch
