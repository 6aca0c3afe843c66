"""A table of real Hudi written once more by this project: the same rows, in the same steps, in the same file groups.

What a step wrote is read from its files: the rows of its instant, and the keys that the file before had and this one
has not (copy-on-write) or that its delete blocks name (merge-on-read).
"""

from __future__ import annotations

import struct
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.file_group.base_file import BLOOM_KEY, BLOOM_TYPE_KEY
from tagstream.table.file_group.bloom import SIMPLE, BloomParams
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import new_file_id, next_instant, parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.schema.conform import conform
from tagstream.table.schema.schema import COMMIT_TIME, RECORD_KEY, avro_to_arrow, with_meta
from tagstream.table.services.metadata_changes import with_metadata_stats
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStat, WriteStatus
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions
from tests.interop.replay_metadata import begin_metadata, services_before, update_metadata
from tests.support.stored import stored

NOW_MS = 1_798_761_600_000  # 2027
SIMPLE_ENTRIES = 1000  # of the one table with SIMPLE filters; such a filter does not tell


@dataclass
class Replay:
    """Both tables, and what stands for what: instants and file ids of the real one, and ours by those.

    ``index_groups``: file groups that a record index by partition gets for each. ``services``: instants of the real
    metadata table's compactions and cleanings that ours has carried out, too.
    """

    real: HoodieTable
    ours: HoodieTable
    instants: dict[str, str] = field(default_factory=dict)
    file_ids: dict[str, str] = field(default_factory=dict)
    index_groups: int = 1
    services: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """What one write stat of the real table stands for."""

    upserts: pa.Table
    deletes: pa.Table


def replay(real_path: Path, folder: Path, steps: int | None = None, *, with_metadata: bool = False) -> Replay:
    """Write the first ``steps`` commits of the real table again, below ``folder``; and its metadata table, if told to."""
    real = HoodieTable.open(str(real_path))
    timeline = real.timeline()
    both = Replay(real, HoodieTable.create(str(folder), _config(real.config), NOW_MS))
    if with_metadata:
        begin_metadata(both, timeline)
    for instant in timeline.completed_writes[:steps]:
        _replay_commit(both, timeline, instant)
    return both


def _config(real: TableConfig) -> TableConfig:
    """What a user would say to have this table."""
    return TableConfig(
        name=real.name,
        version=real.version,
        database=real.database,
        table_type=real.table_type,
        record_key_fields=real.record_key_fields,
        partition_fields=real.partition_fields,
        ordering_fields=real.ordering_fields,
        hive_style=real.hive_style,
        url_encode=real.url_encode,
        merge_mode=real.merge_mode,
        timezone_utc=real.timezone_utc,
    )


def _replay_commit(both: Replay, timeline: Timeline, instant: Instant) -> None:
    real, ours = both.real, both.ours
    metadata = timeline.metadata(real.storage, instant)
    avro = metadata.extra["schema"]
    before = ours.timeline()
    time = next_instant(NOW_MS + 1000 * len(both.instants), before.newest, ours.config.timezone_utc)
    both.instants[instant.time] = time
    commit.request(ours, time, instant.action)
    commit.inflight(ours, time, instant.action, CommitMetadata(operation=metadata.operation))
    statuses: list[WriteStatus] = []
    steps: list[tuple[WriteStat, Step]] = []
    for stat in metadata.all_stats():
        ours_id = both.file_ids.setdefault(stat.file_id, new_file_id(ours.config.name, stat.file_id))
        step = step_of(real, stat, instant.time, avro_to_arrow(avro))
        steps.append((stat, step))
        token = _token(stat.file_name)
        context = WriteContext(
            instant=time,
            action=instant.action,
            task_partition=int(token.split("-")[0]),
            write_token=token,
            schema=avro_to_arrow(avro),
            avro_json=avro,
            as_of=before.newest_completed,
            timeline=before,
            options=with_metadata_stats(
                ours, WriterOptions(bloom=bloom_params(real), inserts_to_base_files=True), avro_to_arrow(avro)
            ),
        )
        statuses += write_file_group(
            ours,
            context,
            stat.partition_path,
            ours_id,
            ours.view(before).latest_slice(stat.partition_path, ours_id),
            step.upserts,
            step.deletes,
        )
    commit.publish_files(ours, time, statuses)
    services_before(both, instant.time)
    after = update_metadata(both, time, statuses, steps)
    content = CommitMetadata.build(statuses, {}, avro, metadata.operation)
    commit.complete(ours, time, instant.action, content, after=after)


def step_of(real: HoodieTable, stat: WriteStat, instant: str, schema: pa.Schema) -> Step:
    """Upserts and deletes that made the file of this write stat."""
    if parse_log_file_name(stat.file_name) is not None:
        return _log_step(real.storage.where(stat.path), schema, next(iter(real.config.ordering_fields), ""))
    rows = _rows(real.storage.where(stat.path), schema)
    written = rows.filter(pc.equal(rows.column(COMMIT_TIME), instant))
    old = _previous(real, stat)
    keys = pq.read_table(old, columns=[RECORD_KEY], partitioning=None).column(0) if old else pa.chunked_array([[""]])
    gone = pc.invert(pc.is_in(keys, value_set=rows.column(RECORD_KEY).combine_chunks())) if old else None
    deleted = keys.filter(gone) if gone is not None else keys.slice(0, 0)
    is_insert = pc.invert(pc.is_in(written.column(RECORD_KEY), value_set=keys.combine_chunks()))
    orderings = pa.nulls(len(deleted), schema.field(next(iter(real.config.ordering_fields), "")).type)
    deletes = pa.table({RECORD_KEY: deleted.cast(pa.string()), "_ordering": orderings})
    return Step(_upserts(written, schema, is_insert), deletes)


def _log_step(path: str, schema: pa.Schema, ordering: str) -> Step:
    kind = schema.field(ordering).type
    rows = [with_meta(schema).empty_table()]
    deletes = [pa.schema([(RECORD_KEY, pa.string()), ("_ordering", kind)]).empty_table()]
    for block in scan_log_file(*stored(path)):
        if block.type is BlockType.DELETE:
            found = block.deletes(kind)
            deletes.append(pa.table({RECORD_KEY: found.keys, "_ordering": found.orderings}))
        else:
            rows.append(block.read_table(with_meta(schema)))
    upserts = pa.concat_tables(rows)
    return Step(_upserts(upserts, schema, pa.array([False] * upserts.num_rows, pa.bool_())), pa.concat_tables(deletes))


def _upserts(rows: pa.Table, schema: pa.Schema, is_insert: pa.Array) -> pa.Table:
    table = rows.select(schema.names).append_column(RECORD_KEY, rows.column(RECORD_KEY))
    return table.append_column("_is_insert", is_insert)


def _rows(path: str, schema: pa.Schema) -> pa.Table:
    return conform(pq.read_table(path, partitioning=None), with_meta(schema), path)


def _previous(real: HoodieTable, stat: WriteStat) -> Path | None:
    """The base file of the slice that the stat names as the one before."""
    folder = Path(real.storage.where(stat.partition_path))
    return next(folder.glob(f"{stat.file_id}_*_{stat.prev_commit}.parquet"), None)


def _token(file_name: str) -> str:
    name = parse_base_file_name(file_name) or parse_log_file_name(file_name)
    assert name is not None and name.write_token is not None, file_name
    return name.write_token


def bloom_params(real: HoodieTable) -> BloomParams:
    """The filter settings the real table was written with, from any of its footers."""
    path = next(p for p in sorted(Path(real.base_path).rglob("*.parquet")) if ".hoodie" not in p.parts)
    footer = pq.read_metadata(path).metadata
    if BLOOM_TYPE_KEY not in footer:
        return BloomParams(SIMPLE, SIMPLE_ENTRIES)
    (entries,) = struct.unpack_from(">i", b64decode(footer[BLOOM_KEY]), 13)
    return BloomParams(footer[BLOOM_TYPE_KEY].decode(), entries, dynamic_max_entries=max(2 * entries, 2000))
