"""The batch of a pull-type index without Spark's joins: where keys are is asked of the record index, of the buckets, or read
from the table; what follows is the product's own step (``streaming.batch.pull_tag``).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.index.base import TableAsOf
from tagstream.index.bucket import HoodieBucketIndex
from tagstream.state.ordering import encode_known
from tagstream.streaming.batch.append import tag_appended
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.located import WriteTasks, packed_columns
from tagstream.streaming.batch.pull_tag import PullSpec, found_schema, tag_pulled
from tagstream.streaming.batch.tag import sorted_out
from tagstream.streaming.job.pull_index import _Resolver, table_as_of
from tagstream.streaming.source.decode.key_decoder import record_keys
from tagstream.streaming.source.packed import unpack
from tagstream.table.fields import ordering_column
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY


def located_by_index(
    job: JobContext, instant: str, keyed: dict[int, list[bytes]]
) -> list[tuple[int, bytes | None, str | None]]:
    """Rows of a batch by write lane, as ``streaming.job.pull_index.located_rows`` gives them."""
    index = job.env.index
    assert index is not None
    look, profile = table_as_of(job, None), job.read_profile()
    spec = PullSpec(profile, job.decode.ordering_kind, index.is_global, index.update_partition_path)
    write_tasks = WriteTasks(job.env.meta.shuffle_partitions, profile.write_tasks)
    if isinstance(index, HoodieBucketIndex):
        spec = replace(spec, locate=index.places(look, instant).locate)
    elif not (job.overwrites or job.options.appends or index.knows_ordering or spec.ordering == "none"):
        spec = replace(spec, resolve=_Resolver(look))
    out: list[tuple[int, bytes | None, str | None]] = []
    for label, values in sorted(keyed.items()):
        records = unpack(values)
        if job.options.appends and not job.options.operation.combine:
            keeps = job.options.operation.keeps_duplicates
            located, counts = tag_appended(label, records, profile, spec.ordering, keeps_duplicates=keeps)
        else:
            looks_up = not (isinstance(index, HoodieBucketIndex) or job.overwrites or job.options.appends)
            found = _found(job, look, records) if looks_up else None
            located, counts = tag_pulled(label, records, found, spec)
        out += zip(*packed_columns(label, located, None, counts, write_tasks), strict=True)
    return out


def _found(job: JobContext, look: TableAsOf, records: pa.Table) -> pa.Table:
    """Places of the records' keys."""
    index = job.env.index
    assert index is not None
    schema = found_schema(job.decode.ordering_kind)
    kind = schema.field("ord").type
    good, _, _ = sorted_out(records)
    keys, parts = record_keys(good.column("skey").combine_chunks()), good.column("part").combine_chunks()
    if look.as_of is None or not len(keys):
        return schema.empty_table()
    if index.name in ("RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX"):
        asked = RecordIndex.open(MetadataTable.open(look.table, look.timeline))
        assert asked is not None, "the job would not have begun"
        tables = [asked.lookup(keys)] if index.is_global else []
        for part in () if index.is_global else pc.unique(parts.drop_null()).to_pylist():
            tables.append(asked.lookup(keys.filter(pc.fill_null(pc.equal(parts, part), False)), part))
        found = pa.concat_tables(tables) if tables else schema.empty_table().drop_columns(["ord"])
        return found.append_column("ord", pa.nulls(found.num_rows, kind)).cast(schema)
    rows = read_snapshot(look.table, as_of=look.as_of)
    rows = rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))
    if not index.is_global:
        pairs = set(zip(keys.to_pylist(), parts.to_pylist(), strict=True))
        own = zip(rows.column(RECORD_KEY).to_pylist(), rows.column(PARTITION_PATH).to_pylist(), strict=True)
        rows = rows.filter(pa.array([pair in pairs for pair in own], pa.bool_()))
    rows = rows.combine_chunks()
    if not rows.num_rows:
        return schema.empty_table()
    ids = [name.lstrip(".").split("_")[0] for name in rows.column(FILE_NAME).to_pylist()]
    view = look.table.view(look.timeline)
    slices = [found for path in view.partitions() for found in view.latest_merged_slices(path)]
    began = {(found.partition_path, found.file_id): found.base_instant for found in slices}
    instants = [began[place] for place in zip(rows.column(PARTITION_PATH).to_pylist(), ids, strict=True)]
    if index.knows_ordering and look.ordering.type is not None:
        ordering = encode_known(ordering_column(rows, look.table.config.ordering_fields))
    else:
        ordering = pa.nulls(rows.num_rows, kind)
    return pa.table(
        [rows.column(RECORD_KEY), rows.column(PARTITION_PATH), pa.array(ids), pa.array(instants), ordering],
        schema=schema,
    )
