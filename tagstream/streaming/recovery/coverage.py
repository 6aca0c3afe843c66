"""Which commits of the table the index covers: an index that lacks rows of the table would write each a second time.

It is asked before a query starts. Covered are the commits that the generation was loaded over, those of its
epochs, and our own ones up to the batch that Spark's checkpoint is at. Other commits on the timeline must be
caught up with; commits that the timeline lacks were restored away. The write profiles that the checkpoint's runs
pinned say which instants it has begun for a batch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tagstream.state.batch_manifest import BatchManifest, manifest_names
from tagstream.state.checkpoint import MANIFESTS, PROFILES
from tagstream.state.durable_files import batch_of
from tagstream.state.errors import IndexDamagedError
from tagstream.state.index_loads import complete_epochs, read_marker
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.commit_record import CommitRecord, digest, parse
from tagstream.streaming.batch.spark_checkpoint import newest_batch, query_id, raw_offset, read_epoch
from tagstream.streaming.batch.tag import profile_name
from tagstream.streaming.recovery.takeover import read_begins
from tagstream.table.errors import TableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import Storage, each
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import RESTORE, Instant
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.write_context import WriteProfile


def is_begun_here(root: Storage, query_id: str, batch_id: int, instant: str) -> bool:
    """Whether a run of the checkpoint of ``root`` has begun ``instant`` for this batch.

    A run pins a profile once Spark has planned the batch, and Spark never plans a batch twice in one checkpoint. So the
    instant then holds this very batch. A profile that cannot be read proves nothing.
    """
    profiles = root.below(PROFILES)
    of_batch = profile_name(batch_id, 0).partition(".")[0]
    return any(
        (pinned := _read(profiles, name)) is not None
        and pinned.mode == "process"  # a replay pins an instant that others may have begun
        and (pinned.query_id, pinned.batch_id, pinned.instant) == (query_id, batch_id, instant)
        for name in profiles.names("")
        if name.partition(".")[0] == of_batch
    )


def _read(profiles: Storage, name: str) -> WriteProfile | None:
    try:
        return WriteProfile.from_json(profiles.read(name).decode(), profiles.where(name))
    except (FileNotFoundError, TableError, UnicodeDecodeError):
        return None


_TRIES = 8  # commits of ours that are asked what they follow: after an archival none can tell, and few commits are left
RETAINED_BATCHES = 100  # Spark's default of spark.sql.streaming.minBatchesToRetain


@dataclass(frozen=True)
class CheckpointState:
    """Spark's query id, its newest planned and newest finished batch; None where there is none yet."""

    query_id: str | None
    planned: int | None
    finished: int | None

    @staticmethod
    def read(root: Storage) -> CheckpointState:
        """From Spark's own folders."""
        return CheckpointState(query_id(root), newest_batch(root, "offsets"), newest_batch(root, "commits"))


@dataclass(frozen=True)
class IndexPlace:
    """The index of a checkpoint's query at one generation. ``retain_batches``: manifests younger than that are all there.

    ``root``: of the query. ``files``: the source is a folder of files, not Kafka. ``pull``: the keys are looked up in the
    table, and so no commit is ever caught up with. ``resuming``: a new query is to read again what others took away.
    ``rows``: the source is a DataFrame.
    """

    root: Storage
    layout: StateLayout
    generation: int
    retain_batches: int
    files: bool
    stream_id: str = ""
    pull: bool = False
    resuming: bool = False
    rows: bool = False

    @property
    def manifests(self) -> Storage:
        """Where batch manifests are kept."""
        return self.root.below(MANIFESTS)


@dataclass(frozen=True)
class Coverage:
    """Instants, oldest first. `uncovered`: completed, and the index does not know them. `lost`: our own, and
    `vanished`: others', that the index knows and the timeline has no more (archived ones are not meant). The commit at
    whose end the query began to read counts as our own.

    `loaded`: those that the generation and its epochs name. `batches`: commits of batches that Spark has planned and not
    finished, by batch id: replays, if the same batch comes again. This checkpoint must have made them, by its manifest or
    its write profile. A commit of a newer copy of the checkpoint does not count: that copy may have put other rows into the
    batch of this number, and deletes of rows that the table did not have left their mark in that copy's index only.
    `knows_any`: the index knows some commit of the table, archived or not.
    """

    uncovered: tuple[str, ...]
    lost: tuple[str, ...]
    vanished: tuple[str, ...]
    loaded: frozenset[str]
    batches: dict[int, tuple[str, CommitRecord]]
    knows_any: bool = field(default=False, compare=False)


def assess(index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState) -> Coverage:
    """Compare the index of a checkpoint with the table's timeline."""
    by_generation = _generation_instants(index)
    loaded = by_generation | {
        time for epoch in complete_epochs(index.layout, index.generation) for time in epoch.instants
    }
    known = finished_instants(index, state)
    begins = begins_after(index, state)
    present = frozenset(i.time for i in timeline.completed_writes)
    counted = loaded | known.keys() | begins
    gone = {time for time in counted if time not in present and not timeline.is_archived(time)}
    gone |= _undone_before_start(table, timeline, counted)
    lost = {time for time in gone if time in known or time in begins}
    uncovered, batches = _sort_out(index, table, timeline, state, by_generation, loaded, known)
    older, archived = _archived(index, table, timeline, state, by_generation, loaded, known)
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
    by_generation: frozenset[str],
    loaded: frozenset[str],
    known: Collection[str],
) -> tuple[tuple[str, ...], dict[int, tuple[str, CommitRecord]]]:
    """The same of commits that were archived after the newest that the index knows: as others may do between two runs.

    The archive is asked only when all that the index knows is in it, from its newest commit on and no further than that.
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
            continue  # cut off in the middle of archiving: it is on the active timeline, too
        record = parse(CommitMetadata.from_bytes(action.metadata or b"", f"archived instant {action.time}").extra)
        time = action.time
        own = record is not None and _is_own(index, record, time, state)
        if record is not None and _is_replay(index, record, time, state, by_generation, own=own):
            batches.setdefault(record.batch_id, (time, record))
        if not own and time not in loaded and time not in known:
            uncovered.add(time)
    return tuple(sorted(uncovered)), batches


def _sort_out(
    index: IndexPlace,
    table: HoodieTable,
    timeline: Timeline,
    state: CheckpointState,
    by_generation: frozenset[str],
    loaded: frozenset[str],
    known: Collection[str],
) -> tuple[tuple[str, ...], dict[int, tuple[str, CommitRecord]]]:
    """The commits that nobody knows, and those of unfinished batches, by a look at as few commit files as will do.

    From the newest on: a commit of ours says by ``follows`` what the index covered then, and where this is exactly what
    came before it, nothing older needs a look. So the work grows with what others have written since.
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
        if record is not None and _is_replay(index, record, time, state, by_generation, own=own):
            batches.setdefault(record.batch_id, (time, record))
        if not own and time not in loaded and time not in known:
            uncovered.append(time)
        if record is not None and own and tries > 0 and not _is_unfinished(record, state):
            if record.follows == digest(i.time for i in writes[:number]):
                break
            tries -= 1
    return tuple(reversed(uncovered)), batches


def _record(table: HoodieTable, timeline: Timeline, instant: Instant, state: CheckpointState) -> CommitRecord | None:
    """Our record of a commit of this query; None for all others, most of which are not parsed."""
    if state.query_id is None:
        return None
    metadata = timeline.metadata_with(table.storage, instant, (state.query_id,))
    return None if metadata is None else parse(metadata.extra)


def _generation_instants(index: IndexPlace) -> frozenset[str]:
    """Commits that the index knows from the loading of its generation."""
    marker = read_marker(index.layout, index.generation) if index.generation else None
    return frozenset(marker.covered if marker is not None else ())


def _is_unfinished(record: CommitRecord, state: CheckpointState) -> bool:
    """Whether Spark has planned the batch of this commit and not finished it."""
    return record.query_id == state.query_id and _last(state.finished) < record.batch_id <= _last(state.planned)


def _undone_before_start(table: HoodieTable, timeline: Timeline, known: Collection[str]) -> frozenset[str]:
    """Those of some writes that are older than the active timeline and were restored away all the same.

    The timeline begins behind its savepoints. When a table was restored to one, and somebody has written since, what was
    taken away in between looks as if it were archived. Whoever goes back takes away the newest writes: so the archive is
    asked only where the newest one that is known is not on the timeline.
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
    """The writes that the restores on the timeline have undone."""
    found: set[str] = set()
    for instant in timeline.instants:
        if instant.action == RESTORE and instant.is_completed:
            data = table.storage.read(f"{table.config.timeline_folder}/{instant.file_name()}")
            found.update(read_record(data, instant.file_name()).get("instantsToRollback") or ())
    return frozenset(found)


def _is_own(index: IndexPlace, record: CommitRecord, time: str, state: CheckpointState) -> bool:
    """A commit whose changes are in the index of this very checkpoint, or will be by a replay."""
    if state.query_id is None or record.query_id != state.query_id:
        return False
    manifest = _read_manifest(index.manifests, record.manifest)
    finished = _last(state.finished)
    if record.batch_id <= finished:
        if manifest is None:  # collected as garbage, if the batch is old enough for that
            return record.batch_id <= finished - index.retain_batches
        return manifest.instant == time
    if manifest is None or manifest.instant != time or raw_offset(index.root, record.batch_id) is None:
        return False
    return record.same_batch(read_epoch(index.root, record.batch_id, files=index.files, rows=index.rows))


def _is_replay(
    index: IndexPlace,
    record: CommitRecord,
    time: str,
    state: CheckpointState,
    by_generation: frozenset[str],
    *,
    own: bool,
) -> bool:
    """Whether the commit is of an unfinished batch that this checkpoint has made: by its manifest (``own``), or by its write
    profile where the manifest is lost and the index was loaded with the rows.

    Number and offsets alone prove nothing: a newer copy of the checkpoint has counted the same batches, and offsets of
    files are counters, too.
    """
    if not _is_unfinished(record, state):
        return False
    return own or (time in by_generation and is_begun_here(index.root, record.query_id, record.batch_id, time))


def finished_instants(index: IndexPlace, state: CheckpointState) -> dict[str, int]:
    """Instant -> batch of the finished batches whose manifests are still there."""
    if state.query_id is None:
        return {}
    manifests = index.manifests
    names = [n for n in manifest_names(manifests) if (b := batch_of(n)) is not None and b <= _last(state.finished)]
    read = each(lambda name: _read_manifest(manifests, name), names)
    return {m.instant: m.batch_id for m in read if m is not None and m.query_id == state.query_id and m.instant}


def begins_after(index: IndexPlace, state: CheckpointState) -> frozenset[str]:
    """The commit at whose end the query began to read. Empty without a query, and where no commit gave the place."""
    begins = None if state.query_id is None else read_begins(index.root)
    return frozenset() if begins is None else frozenset({begins})


def _read_manifest(manifests: Storage, name: str) -> BatchManifest | None:
    """None for one that is missing or damaged: its commit counts as unknown, and is looked at in the table again."""
    try:
        return BatchManifest.read(manifests, name)
    except IndexDamagedError:
        return None


def _last(batch: int | None) -> int:
    return -1 if batch is None else batch
