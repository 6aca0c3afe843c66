"""All that one run of the job works with: its environment, the position of the index, the batches before, hooks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.index.base import HoodieIndex
from tagstream.state.batch_manifest import BatchManifest, ExpectedChains, chains_before
from tagstream.state.checkpoint import INDEX, LEFT, MANIFESTS, PROFILES, QUARANTINE, SCHEMAS, CheckpointMeta, Root
from tagstream.state.garbage_collection import collect_garbage
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.commit_record import CommitRecord
from tagstream.streaming.batch.located import shared_out
from tagstream.streaming.batch.metadata_keeper import MetadataKeeper
from tagstream.streaming.batch.report import LoadLog
from tagstream.streaming.batch.small_files import PinnedSizes, SmallFiles
from tagstream.streaming.batch.spark_checkpoint import Epoch, newest_batch
from tagstream.streaming.batch.tag import profile_name
from tagstream.streaming.batch.write import WriteSpec, told
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.options.options import Options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.source.decode.record_format import Noticed
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.evolve import EvolutionRules
from tagstream.table.storage.opening import private
from tagstream.table.storage.storage import Storage, create
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import WRITER_KEY
from tagstream.table.write.write_context import WriteProfile, WriterOptions

INSERT_OVERWRITE = "INSERT_OVERWRITE"
SMALL_BATCH_RECORDS = 20_000  # under this a second writer of a partition costs more than it saves


@dataclass(frozen=True)
class RunEnvironment:
    """What a run of the job is given and never changes.

    ``clock_ms`` gives epoch milliseconds. ``writer``: how files are written. ``retain_batches``: how many batches Spark may
    run again. ``index``: the pull-type index that tags in the sink, None for the state index.
    """

    checkpoint: Storage
    meta: CheckpointMeta
    writer: WriterOptions
    lease: LeaseKeeper
    stop: StopFlag
    crash: CrashPlan
    clock_ms: Callable[[], int]
    retain_batches: int
    index: HoodieIndex | None = None


@dataclass
class IndexPosition:
    """How far the index is. Recovery sets it before a query, a clustering and the sink move it.

    ``generation``: 0 began empty, others were loaded from the table; ``epoch``: catch-ups since. ``covered``: completed
    writes that the index knows, ``loaded``: those it knows from the table itself, ``batches``: commits of this query that
    Spark may run again. ``starting_offsets``: Spark's, for a new query. ``rollbacks_seen``: completed rollbacks that were
    compared with the commits of this stream. ``chains``: where the key groups are before the batch that was pinned or
    committed last.
    """

    generation: int = 0
    epoch: int = 0
    covered: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    batches: Mapping[int, tuple[str, CommitRecord]] = field(default_factory=dict)
    starting_offsets: str | None = None
    rollbacks_seen: set[str] = field(default_factory=set)
    chains: ExpectedChains | None = None


@dataclass
class BatchHistory:
    """What the batches before say to the next one. The sink and its timeline guard set it.

    ``instant``: the write that this process began last. ``timeline``: the look that the batch is decided on. ``records``,
    ``file_groups`` and ``work`` (rows by file group, ``batch.located.work_of``): of the batch before. ``profile``: the one
    that was pinned last. ``partition_depth``: of the table's partitions, None where none need be known or no commit has it.
    ``late_copies``: a copy of a write that was rolled back may still appear; a look after the batch finds it.
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
    """Who is asked and informed during a run.

    ``loading`` gets how far the loading of the index is, ``step`` what the batch is at, ``service`` what a table service
    did, ``own_failure`` that an error of this project is about to end the query. ``look_at_schema`` is called before
    each batch and raises SchemaChangedError where the given schema is another one;
    ``check_topic`` is called before each commit and
    raises where the topic is another one.
    """

    loading: Callable[[BootstrapProgress], None] = field(default_factory=LoadLog)
    step: Callable[[str, int | None], None] = lambda _step, _batch_id: None
    service: Callable[[str, int, str | None], None] = lambda _name, _completed, _error: None
    own_failure: Callable[[], None] = lambda: None
    look_at_schema: Callable[[], None] = lambda: None
    check_topic: Callable[[], None] = lambda: None


@dataclass
class JobContext:
    """All that one run of the job works with: what it is given, the parts that change with an owner each, and the table as
    the query that runs sees it.

    ``run`` counts the starts of this checkpoint and never repeats; ``run_owner`` tells this run from every other, also from
    one of a checkpoint that was here before. ``root``: the folder of its query. ``metadata``: keeps the table's metadata
    table in step, None where there is none. ``noticed``: schemas that records have had since the start. ``topic_id``: of the
    topic that is read, None where it is not known.
    """

    env: RunEnvironment
    options: Options
    table: HoodieTable
    root: Root
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

    @property
    def action(self) -> str:
        """The timeline action of a batch: commit, delta commit (merge-on-read) or replacecommit (overwrite)."""
        if self.overwrites:
            return REPLACE_COMMIT
        return "deltacommit" if self.table.config.is_merge_on_read else "commit"

    @property
    def overwrites(self) -> bool:
        """Whether a batch takes the place of all that the partitions it touches hold."""
        return self.options.op == INSERT_OVERWRITE

    def go_on_at(self, root: Root) -> None:
        """Work with another root of the checkpoint from here on."""
        self.root = root
        self.layout = replace(self.layout, durable=root.files.below(INDEX))

    @property
    def profiles(self) -> Storage:
        """Where write profiles are pinned."""
        return self.root.files.below(PROFILES)

    @property
    def manifests(self) -> Storage:
        """Where batch manifests are kept."""
        return self.root.files.below(MANIFESTS)

    @property
    def schema_notes(self) -> Storage:
        """Where tasks leave the schemas that they have noticed."""
        return self.root.files.below(SCHEMAS)

    @property
    def quarantine(self) -> Storage:
        """Where bad records go, for the job's user alone."""
        return private(self.root.files.below(QUARANTINE))

    @property
    def left(self) -> Storage:
        """Where rows of changed keys are left; of all queries of the checkpoint, for one may go on where another ended."""
        return private(self.env.checkpoint.below(LEFT))

    def begun_by(self, batch_id: int) -> CommitMetadata:
        """What the inflight file of a batch says, so that a later run knows it for a leftover of this project."""
        writer = {"stream_id": self.env.meta.stream_id, "run": self.run, "batch_id": batch_id}
        return CommitMetadata(extra={WRITER_KEY: json.dumps(writer, sort_keys=True)}, operation=self.options.op)

    def take_schema(self, avro_json: str, defaults_json: str, evolution: EvolutionRules | None) -> None:
        """Go on with a schema; ``evolution``: how those of records change it."""
        self.avro_json = avro_json
        self.decode = replace(self.decode, avro_json=avro_json, defaults_json=defaults_json, evolution=evolution)

    def pin_profile(self, epoch: Epoch, instant: str) -> None:
        """Write the profile of a batch that is about to run; once per batch and run."""
        files = self.small_files
        self._pin(
            epoch,
            instant,
            lanes=self._lanes(),
            records_per_new_file=min(
                self.options.insert_split_size, max(1, self.options.parquet_max_file_size // files.record_bytes)
            ),
            # Of what is there nothing stays.
            small_groups=None
            if self.overwrites
            else self.history.sizes.pin(self.profiles, files, epoch.batch_id, self.run),
            write_lanes=shared_out(self.history.work, self.env.meta.shuffle_partitions),
            **self._expected_chains(epoch),
        )

    def committed(self, deltas: Mapping[int, str]) -> None:
        """The batch that was pinned last is committed with these deltas: the next one begins at them."""
        if self.position.chains is not None:
            self.position.chains = self.position.chains.after(deltas)

    def pin_replay(self, epoch: Epoch, instant: str, manifest: str) -> None:
        """Write the profile that makes the tag step adopt the deltas of a batch the table already holds.

        An index that was loaded over that commit has its rows already: there is nothing to adopt.
        """
        if instant in self.position.loaded:
            self._pin(epoch, instant, mode="replay")
            return
        made = BatchManifest.read(self.manifests, manifest)
        self._pin(
            epoch, instant, mode="replay", manifest=made.deltas, generation=made.generation, index_epoch=made.epoch
        )

    def write_spec(self, batch_id: int, instant: str, *, replay: bool) -> WriteSpec:
        """The constants of the batch's write tasks."""
        return WriteSpec(
            table=self.table,
            timeline=self.history.timeline or self.table.timeline(),
            instant=instant,
            action=self.action,
            batch_id=batch_id,
            run=self.run,
            avro_json=self.decode.stored_json,
            options=self._file_options(),
            decode=self.decode,
            quarantine=self.quarantine,
            left=self.left,
            topic=self.options.kafka_topic or "",
            crash=self.env.crash,
            replay=replay,
            index=self.env.index if self.env.index is not None and self.env.index.update_in_tasks else None,
            tell_written=told(self.env.index, wants_places=self.metadata is not None and self.metadata.wants_places),
            tell_moves=self.metadata is not None and self.metadata.by_partition,
        )

    def _file_options(self) -> WriterOptions:
        """How files are written, with what the metadata table has to know of them."""
        kept = self.metadata
        if kept is None:
            return self.env.writer
        return replace(self.env.writer, range_columns=frozenset(kept.columns), tells_bloom=kept.wants_blooms)

    def read_profile(self) -> WriteProfile:
        """The profile that was pinned last."""
        if self.history.profile is None:
            raise ValueError("no profile was pinned yet")
        return self.history.profile

    def collect_garbage(self, batch_id: int) -> None:
        """Remove index files and profiles that no batch Spark may still ask for can name."""
        if batch_id % max(1, self.env.retain_batches // 10):
            return  # it lists the folders of all key groups, which not every batch must wait for
        oldest = batch_id - self.env.retain_batches
        committed = newest_batch(self.root.files, "commits")
        if oldest <= 0 or committed is None:
            return
        collect_garbage(
            self.layout, self.env.meta.labels, self.position.generation, min(oldest, committed), self.manifests
        )
        profiles = self.profiles
        names = profiles.names("")
        batches = {name: name.split(".")[0] for name in names}
        old = [name for name, batch in batches.items() if batch.isdigit() and int(batch) < oldest]
        profiles.delete_many([*old, *self.history.sizes.superfluous(names, oldest)])

    def _expected_chains(self, epoch: Epoch) -> dict[str, Any]:
        """Where the key groups stand before a batch: known from the batch before it, else read from the manifests."""
        if self.env.index is not None:  # there is no state
            return {}
        if self.position.chains is None or not self.position.chains.is_for(
            epoch.query_id, self.position.generation, epoch.batch_id
        ):
            self.position.chains = chains_before(
                self.manifests,
                self.env.meta.labels,
                epoch.query_id,
                self.position.generation,
                epoch.batch_id,
                self.env.retain_batches,
            )
        return {"chains": dict(self.position.chains.chains), "chains_whole": self.position.chains.whole}

    def _lanes(self) -> int:
        """How many file groups of one partition take inserts at the same time.

        When the batch before touched many file groups, one each keeps all cores busy; when it was large and touched few
        (a table without partitions, or only today's), a partition's inserts are cut so that the writing is shared.
        """
        many = self.history.file_groups >= 2 * self.env.meta.shuffle_partitions
        return 1 if many or self.history.records < SMALL_BATCH_RECORDS else self.env.meta.shuffle_partitions

    def _pin(
        self, epoch: Epoch, instant: str, *, generation: int | None = None, index_epoch: int | None = None, **more: Any
    ) -> None:
        profile = WriteProfile(
            table_name=self.table.config.name,
            query_id=epoch.query_id,
            batch_id=epoch.batch_id,
            run=self.run,
            instant=instant,
            batch_time_ms=self.env.clock_ms(),
            labels=self.env.meta.labels,
            generation=self.position.generation if generation is None else generation,
            epoch=self.position.epoch if index_epoch is None else index_epoch,
            partition_depth=self.history.partition_depth,
            **more,
        )
        self.history.profile = profile
        name = profile_name(profile.batch_id, profile.run)
        if not create(self.profiles, name, profile.to_json().encode()):
            raise FileExistsError(f"{self.profiles.where(name)} was pinned already, by a run of the same number")
