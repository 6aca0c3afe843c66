"""What one run of the job works with: its environment, the index position, the batch history and hooks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.index.base import HoodieIndex
from tagstream.state.batch_manifest import BatchManifest, ExpectedChains, chains_before
from tagstream.state.checkpoint import (
    CHANGED_KEYS,
    INDEX,
    MANIFESTS,
    PROFILES,
    QUARANTINE,
    SCHEMAS,
    CheckpointMeta,
    QueryFolder,
)
from tagstream.state.garbage_collection import collect_garbage
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.commit_record import CommitRecord
from tagstream.streaming.batch.located import shared_out
from tagstream.streaming.batch.metadata_keeper import MetadataKeeper
from tagstream.streaming.batch.report import LoadLog
from tagstream.streaming.batch.small_files import PinnedSizes, SmallFiles
from tagstream.streaming.batch.spark_checkpoint import SparkBatch, newest_batch
from tagstream.streaming.batch.tag import profile_name
from tagstream.streaming.batch.write import WriteSpec, returned_rows
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.options.options import Options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.source.decode.record_format import Noticed
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.streaming.source.task_files import TaskFiles
from tagstream.table.locks.lock import TableLock
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.evolve import EvolutionRules
from tagstream.table.storage.opening import private
from tagstream.table.storage.storage import Storage, create
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT
from tagstream.table.timeline.operation import OVERWRITES, WriteOperationType
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import WRITER_KEY
from tagstream.table.write.write_context import WriteProfile, WriterOptions

_RUNS = 1_000
SMALL_BATCH_RECORDS = 20_000  # for smaller batches, a second writer of a partition costs more than it saves


@dataclass(frozen=True)
class RunEnvironment:
    """The constants of one run of the job.

    ``clock_ms`` returns epoch milliseconds. ``writer``: how files are written. ``retain_batches``: how many of the
    newest batches Spark may run again. ``index``: the pull-type index that tags in the sink; None for the state index.
    ``lock``: the lock that other writers of the table take, too.
    """

    checkpoint: Storage
    meta: CheckpointMeta
    writer: WriterOptions
    lease: LeaseKeeper
    stop: StopFlag
    crash: CrashPlan
    clock_ms: Callable[[], int]
    retain_batches: int
    lock: TableLock
    index: HoodieIndex | None = None

    def check(self) -> None:
        """Before a step that cannot be undone: LeaseLostError without the lease, LockLostError without a lock that this
        process must hold.
        """
        self.lease.check()
        self.lock.check()


@dataclass
class IndexPosition:
    """Which writes of the table the index has. Recovery sets it before a query starts. A clustering and the sink update
    it.

    ``index_load``: number of the index load; 0 for an index that began empty. ``catch_up``: number of catch-ups since that
    load. ``covered``: completed writes that the index contains. ``loaded``: those of them that were loaded from the
    table. ``batches``: commits of this query that Spark may run again. ``starting_offsets``: Spark's starting offsets
    of a new query. ``rollbacks_seen``: completed rollbacks that were already compared with the commits of this stream.
    ``chains``: the delta chains of the key groups before the batch that was pinned or committed last.
    """

    index_load: int = 0
    catch_up: int = 0
    covered: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    batches: Mapping[int, tuple[str, CommitRecord]] = field(default_factory=dict)
    starting_offsets: str | None = None
    rollbacks_seen: set[str] = field(default_factory=set)
    chains: ExpectedChains | None = None


@dataclass
class BatchHistory:
    """What the earlier batches say to the next one. The sink and its timeline guard set it.

    ``instant``: the write that this process began last. ``timeline``: the timeline as it was read for the current
    batch. ``records``, ``file_groups`` and ``work`` (rows by file group, ``batch.located.work_of``) are those of the
    last batch. ``profile``: the write profile that was pinned last. ``partition_depth``: depth of the table's partition
    paths; None where it is not needed or no commit has it. ``late_copies``: a copy of a write that was rolled back may
    still appear, so the timeline is read again after the batch.
    """

    instant: str | None = None
    timeline: Timeline | None = None
    records: int = 0
    file_groups: int = 0
    work: Mapping[tuple[str, str], int] = field(default_factory=dict)
    profile: WriteProfile | None = None
    sizes: PinnedSizes = field(default_factory=PinnedSizes)
    partition_depth: int | None = None
    late_copies: bool = False


@dataclass
class RunHooks:
    """Callbacks of a run.

    ``loading`` gets the progress of the index load. ``step`` gets the current step of a batch and the batch number.
    ``service`` gets the name of a table service, how many actions it completed, and its error. ``own_failure`` is
    called when an error of this project is about to end the query. ``look_at_schema`` is called before each batch and
    raises SchemaChangedError where the given schema has changed. ``check_topic`` is called before each commit and
    raises where the topic was created again.
    """

    loading: Callable[[BootstrapProgress], None] = field(default_factory=LoadLog)
    step: Callable[[str, int | None], None] = lambda _step, _batch_id: None
    service: Callable[[str, int, str | None], None] = lambda _name, _completed, _error: None
    own_failure: Callable[[], None] = lambda: None
    look_at_schema: Callable[[], None] = lambda: None
    check_topic: Callable[[], None] = lambda: None


@dataclass
class JobContext:
    """What one run of the job works with: constants, parts that change and have one owner each, and the table as the
    query sees it.

    ``run`` is the number of this start of the checkpoint. It never repeats. ``run_owner`` identifies this run among all
    runs, also those of an earlier checkpoint at the same location. ``query_folder``: the query's folder in the checkpoint.
    ``metadata``: keeps the table's metadata table in sync; None where the table has none. ``noticed``: schemas of
    records that were found since the start. ``topic_id``: Kafka's id of the topic; None where it is unknown. ``task_files``:
    of the query's tasks; None where rows go through the shuffles.
    """

    env: RunEnvironment
    options: Options
    table: HoodieTable
    query_folder: QueryFolder
    run: int
    run_owner: str
    layout: StateLayout
    decode: DecodeSpec
    avro_json: str
    small_files: SmallFiles
    position: IndexPosition = field(default_factory=IndexPosition)
    history: BatchHistory = field(default_factory=BatchHistory)
    hooks: RunHooks = field(default_factory=RunHooks)
    metadata: MetadataKeeper | None = None
    noticed: tuple[Noticed, ...] = ()
    topic_id: str | None = None
    task_files: TaskFiles | None = None

    @property
    def action(self) -> str:
        """The timeline action of a batch: commit, delta commit (merge-on-read) or replacecommit (overwrite)."""
        if self.overwrites:
            return REPLACE_COMMIT
        return "deltacommit" if self.table.config.is_merge_on_read else "commit"

    @property
    def overwrites(self) -> bool:
        """Whether a batch replaces all rows of the partitions that it writes to (``INSERT_OVERWRITE``), or of the table
        (``INSERT_OVERWRITE_TABLE``).
        """
        return self.options.table.operation in OVERWRITES

    @property
    def bulk_inserts(self) -> bool:
        """Whether a batch's rows go to new file groups, straight from the tasks that have them (``BULK_INSERT``)."""
        return self.options.table.operation == WriteOperationType.BULK_INSERT

    @property
    def file_run(self) -> int:
        """The number of this run in the names of files: that of no other run of any stream of the table."""
        prefix = self.small_files.prefix
        return self.run if not prefix else int(prefix[:5], 16) * _RUNS + self.run % _RUNS

    def use_query_folder(self, query_folder: QueryFolder) -> None:
        """Use another query folder of the checkpoint from now on."""
        self.query_folder = query_folder
        self.layout = replace(self.layout, durable=query_folder.files.below(INDEX))

    @property
    def profiles(self) -> Storage:
        """Folder of the write profiles."""
        return self.query_folder.files.below(PROFILES)

    @property
    def manifests(self) -> Storage:
        """Folder of the batch manifests."""
        return self.query_folder.files.below(MANIFESTS)

    @property
    def schema_notes(self) -> Storage:
        """Folder where tasks write the schemas that they have found."""
        return self.query_folder.files.below(SCHEMAS)

    @property
    def quarantine(self) -> Storage:
        """Folder of bad records. Only the job's user can read it."""
        return private(self.query_folder.files.below(QUARANTINE))

    @property
    def changed_keys(self) -> Storage:
        """Folder of rows of changed keys. Only the job's user can read it.

        All queries of the checkpoint share it, since a query may continue where another one ended.
        """
        return private(self.env.checkpoint.below(CHANGED_KEYS))

    def inflight_metadata(self, batch_id: int) -> CommitMetadata:
        """Commit metadata for the inflight file of a batch. A later run recognizes an unfinished batch of this project
        by it.
        """
        writer = {"stream_id": self.env.meta.stream_id, "run": self.run, "batch_id": batch_id}
        return CommitMetadata(
            extra={WRITER_KEY: json.dumps(writer, sort_keys=True)}, operation=self.options.table.operation
        )

    def take_schema(self, avro_json: str, defaults_json: str, evolution: EvolutionRules | None) -> None:
        """Use this schema from now on. ``evolution``: how schemas of records change it."""
        self.avro_json = avro_json
        self.decode = replace(self.decode, avro_json=avro_json, defaults_json=defaults_json, evolution=evolution)

    def pin_profile(self, spark_batch: SparkBatch, instant: str) -> None:
        """Write the profile of a batch that is about to run. Called once per batch and run."""
        files = self.small_files
        self._pin(
            spark_batch,
            instant,
            slots=self._slots(),
            records_per_new_file=files.records_per_new_file,
            # No existing file gets rows.
            small_groups=None
            if self.overwrites or self.bulk_inserts
            else self.history.sizes.pin(self.profiles, files, spark_batch.batch_id, self.run),
            write_tasks=shared_out(self.history.work, self.env.meta.shuffle_partitions),
            **self._expected_chains(spark_batch),
        )

    def committed(self, deltas: Mapping[int, str]) -> None:
        """Record that the batch that was pinned last is committed with these deltas. The next batch starts from them.

        ``deltas``: delta file by label of the key group.
        """
        if self.position.chains is not None:
            self.position.chains = self.position.chains.after(deltas)

    def pin_replay(self, spark_batch: SparkBatch, instant: str, manifest: str) -> None:
        """Write the profile that makes the tag step adopt the deltas of a batch that the table already has.

        An index that was loaded from the table after that commit already has its rows. Then no delta is adopted.
        """
        if instant in self.position.loaded:
            self._pin(spark_batch, instant, mode="replay")
            return
        made = BatchManifest.read(self.manifests, manifest)
        self._pin(
            spark_batch,
            instant,
            mode="replay",
            manifest=made.deltas,
            index_load=made.index_load,
            catch_up=made.catch_up,
        )

    def write_spec(self, batch_id: int, instant: str, *, replay: bool) -> WriteSpec:
        """The constants of the batch's write tasks."""
        return WriteSpec(
            table=self.table,
            timeline=self.history.timeline or self.table.timeline(),
            instant=instant,
            action=self.action,
            batch_id=batch_id,
            run=self.file_run,
            avro_json=self.decode.stored_json,
            options=self._file_options(),
            decode=self.decode,
            quarantine=self.quarantine,
            changed_keys=self.changed_keys,
            topic=self.options.kafka.topic or "",
            crash=self.env.crash,
            replay=replay,
            index=self.env.index if self.env.index is not None and self.env.index.update_in_tasks else None,
            returned_rows=returned_rows(
                self.env.index, wants_places=self.metadata is not None and self.metadata.wants_places
            ),
            returns_moves=self.metadata is not None and self.metadata.by_partition,
        )

    def _file_options(self) -> WriterOptions:
        """How files are written, including the statistics that the metadata table needs."""
        kept = self.metadata
        if kept is None:
            return self.env.writer
        return replace(self.env.writer, range_columns=frozenset(kept.columns), returns_bloom=kept.wants_blooms)

    def read_profile(self) -> WriteProfile:
        """The profile that was pinned last. ValueError where none was pinned."""
        if self.history.profile is None:
            raise ValueError("no write profile was written yet: call pin_profile or pin_replay first")
        return self.history.profile

    def collect_garbage(self, batch_id: int) -> None:
        """Remove files of tasks, index files and write profiles that no batch needs that Spark may run again."""
        TaskFiles.below(self.layout.local_dir).forget(batch_id)
        if batch_id % max(1, self.env.retain_batches // 10):
            return  # the step lists the folders of all key groups, which is too slow for every batch
        oldest = batch_id - self.env.retain_batches
        committed = newest_batch(self.query_folder.files, "commits")
        if oldest <= 0 or committed is None:
            return
        collect_garbage(
            self.layout, self.env.meta.labels, self.position.index_load, min(oldest, committed), self.manifests
        )
        profiles = self.profiles
        names = profiles.names("")
        batches = {name: name.split(".")[0] for name in names}
        old = [name for name, batch in batches.items() if batch.isdigit() and int(batch) < oldest]
        profiles.delete_many([*old, *self.history.sizes.superfluous(names, oldest)])

    def _expected_chains(self, spark_batch: SparkBatch) -> dict[str, Any]:
        """The delta chains of the key groups before a batch: known from the last batch, else read from the manifests."""
        if self.env.index is not None:  # there is no state
            return {}
        if self.position.chains is None or not self.position.chains.is_for(
            spark_batch.query_id, self.position.index_load, spark_batch.batch_id
        ):
            self.position.chains = chains_before(
                self.manifests,
                self.env.meta.labels,
                spark_batch.query_id,
                self.position.index_load,
                spark_batch.batch_id,
                self.env.retain_batches,
            )
        return {"chains": dict(self.position.chains.chains), "chains_whole": self.position.chains.whole}

    def _slots(self) -> int:
        """How many file groups of one partition get new rows in parallel.

        One is enough where the last batch wrote to many file groups: these keep all cores busy. Where a large batch
        wrote to few file groups (a table without partitions, or only today's partition), the new rows of a partition
        are split over more file groups.
        """
        many = self.history.file_groups >= 2 * self.env.meta.shuffle_partitions
        return 1 if many or self.history.records < SMALL_BATCH_RECORDS else self.env.meta.shuffle_partitions

    def _pin(
        self,
        spark_batch: SparkBatch,
        instant: str,
        *,
        index_load: int | None = None,
        catch_up: int | None = None,
        **more: Any,
    ) -> None:
        profile = WriteProfile(
            table_name=self.table.config.name,
            query_id=spark_batch.query_id,
            batch_id=spark_batch.batch_id,
            run=self.run,
            instant=instant,
            batch_time_ms=self.env.clock_ms(),
            labels=self.env.meta.labels,
            index_load=self.position.index_load if index_load is None else index_load,
            catch_up=self.position.catch_up if catch_up is None else catch_up,
            partition_depth=self.history.partition_depth,
            file_prefix=self.small_files.prefix,
            **more,
        )
        self.history.profile = profile
        name = profile_name(profile.batch_id, profile.run)
        if not create(self.profiles, name, profile.to_json().encode()):
            raise FileExistsError(
                f"{self.profiles.where(name)} already exists: another run with the same number wrote it"
            )
