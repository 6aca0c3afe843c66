"""Shapes of tables that the fixtures do not have, made by real Hudi as a test needs them; all with columns of every type."""

from __future__ import annotations

from tests.interop.shape_steps import NOT_GIVEN, Shape, died, row, rows, sql, write

FIRST = write(rows(range(24)), "insert")
CHANGED = write([*rows(range(0, 12, 2), 2, "changed"), *rows(range(30, 33), 2)])
GONE = write(rows([3, 9], 3), "delete")
BACK = write(rows([3], 4, "back"))
MOVED = write(rows([1, 4, 7], 5, "moved", part="p9"))
THREE, FOUR = (FIRST, CHANGED, GONE), (FIRST, CHANGED, GONE, BACK)
OVERWRITTEN = write(rows([40, 43], 6, part="p1"), "insert_overwrite")
DELETED_PARTITION = write(rows([1]), "delete_partition", hoodie__datasource__write__partitions__to__delete="p1")
WITH_S = write([each for each in rows(range(24)) if each["s"]], "insert")
_GLOBAL = "hoodie.metadata.global.record.level.index."
GLOBAL = {
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    f"{_GLOBAL}enable": "true",
    f"{_GLOBAL}min.filegroup.count": "2",
    "hoodie.record.index.update.partition.path": "true",
}
BY_PARTITION = {"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.record.level.index.enable": "true"}
_LOCK = "hoodie.write.lock.provider"
IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
LAZY = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    _LOCK: IN_PROCESS,
}
LOG_COMPACTION = {
    f"hoodie.{what}log.compaction.{key}": value
    for what in ("", "metadata.")
    for key, value in (("inline", "true"), ("enable", "true"), ("blocks.threshold", "2"))
}
COMMIT_TIME = {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
_PART = "hoodie.datasource.write.partitionpath."
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
COMPACT = "call run_compaction(path => '{path}', op => '%s', options => 'hoodie.compact.inline.max.delta.commits=1')"
CLUSTER = "call run_clustering(path => '{path}', op => '%s')"
TAKES_BACK = {"hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true"}
# Hudi's MERGE INTO writes the assigned columns alone into logs, unless told not to.
MERGE = sql(
    "set hoodie.compact.inline=false",
    "merge into {t} as t using (select 'k001' as id, 9L as ts, 'merged' as name union all select 'k004', 9L, null) as s "
    "on t.id = s.id when matched then update set t.name = s.name, t.ts = s.ts",
)
INDEXES = sql(
    f"set {_LOCK}={IN_PROCESS}",
    "create index by_name on {t} (name)",
    "create index by_day on {t} using column_stats(ts) options(expr='from_unixtime', format='yyyy-MM-dd')",
)
_PAYLOAD = "hoodie.datasource.write.payload.class"
_MODEL = "org.apache.hudi.common.model."

WRITTEN = {
    "mor_v9_moves": Shape((*FOUR, MOVED), options=GLOBAL),
    "cow_v8_moves": Shape((*THREE, MOVED), 8, mor=False, options=GLOBAL),
    "mor_v9_by_partition": Shape(FOUR, options=BY_PARTITION),
    "mor_v9_overwritten": Shape((*THREE, OVERWRITTEN, BACK)),
    "cow_v8_partition_deleted": Shape((*THREE, DELETED_PARTITION, BACK), 8, mor=False),
    "cow_v9_clustered": Shape((*THREE, sql(CLUSTER % "scheduleandexecute"), BACK), mor=False),
    "mor_v9_clustering_requested": Shape((*THREE, sql(CLUSTER % "schedule")), stream=TAKES_BACK),
    "mor_v9_clustering_died": Shape(
        (*THREE, sql(CLUSTER % "scheduleandexecute"), died("replacecommit")), stream=TAKES_BACK
    ),
    "mor_v9_compaction_requested": Shape((*THREE, sql(COMPACT % "schedule"), BACK)),
    "mor_v9_compaction_died": Shape((*THREE, sql(COMPACT % "scheduleandexecute"), died("commit"))),
    "mor_v9_log_compacted": Shape((*THREE, BACK, CHANGED, write(rows(range(6), 7, "logs"))), options=LOG_COMPACTION),
    "cow_v8_ingestion_died": Shape((*THREE, BACK, died("commit")), 8, mor=False, options=LAZY),
    # The markers of a write go with its completion, so here Hudi's rollback has to list what the write has left.
    "mor_v9_rollback_died": Shape(
        (*THREE, CHANGED, died("deltacommit"), BACK, died("rollback")), options={"hoodie.rollback.using.markers": "false"}
    ),
    "mor_v9_indexes_and_savepoint": Shape(
        (*THREE, INDEXES, sql("call create_savepoint(path => '{path}')"), CHANGED),
        options={**GLOBAL, "hoodie.metadata.index.bloom.filter.enable": "true"},
    ),
    "mor_v9_partial": Shape((*THREE, MERGE)),
    "mor_v8_partial_commit_time": Shape((FIRST, MERGE, CHANGED), 8, options=COMMIT_TIME),
    "cow_v8_commit_time": Shape(THREE, 8, mor=False, options=COMMIT_TIME),
    "cow_v9_nested_key": Shape(
        (WITH_S, CHANGED), mor=False, options={"hoodie.datasource.write.recordkey.field": "s.a"}, moves=False
    ),
    "mor_v9_nested_partition": Shape(
        (WITH_S, CHANGED), options={f"{_PART}field": "s.b"}, moves=False
    ),
    "mor_v9_hive_encoded": Shape(
        (write([*rows(range(6)), *rows(range(6, 12), part="a/b c=ä%"), {**row(12), "part": None}], "insert"), CHANGED),
        options={**HIVE, f"{_PART}urlencode": "true"},
    ),
    "cow_v9_two_fields": Shape(THREE, mor=False, options={f"{_PART}field": "part,flag", **HIVE}),
    "cow_v9_archived": Shape(
        (*THREE, *(write(rows(range(n, n + 3), 10 + n, f"n{n}")) for n in range(4))),
        mor=False,
        options={"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"},
    ),
    "mor_v9_upgraded": Shape(
        (*THREE, write(rows([5], 8), hoodie__write__table__version="9", hoodie__write__auto__upgrade="true")),
        options={"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"},
    ),
    "mor_v9_bucket": Shape(THREE, options=BUCKETS, stream=BUCKETS, moves=False),
    "mor_v9_operation_field": Shape(THREE, options={"hoodie.allow.operation.metadata.field": "true"}),
    "cow_v9_parquet_metafile": Shape(THREE, mor=False, options={"hoodie.partition.metafile.use.base.format": "true"}),
    "mor_v6": Shape(FOUR, 6),
    "cow_v6_overwritten": Shape((*THREE, OVERWRITTEN, BACK), 6, mor=False),
    "cow_v9_cdc": Shape((FIRST, CHANGED), mor=False, options={"hoodie.table.cdc.enabled": "true"}),
    "mor_v9_cdc": Shape(THREE, options={"hoodie.table.cdc.enabled": "true"}),
}  # fmt: skip
READ = {
    "mor_v9_ignore_defaults": Shape(
        (*THREE, write([{**row(n, 8), "name": None, "s": None} for n in range(4)])),
        options={_PAYLOAD: f"{_MODEL}OverwriteNonDefaultsWithLatestAvroPayload"},
        refused="partial.update.mode=IGNORE_DEFAULTS",
    ),
    "mor_v8_partial_payload": Shape(
        (*THREE, write([{**row(n, 8 * (n % 2)), "name": None, "s": None} for n in range(4)])),
        8,
        options={_PAYLOAD: f"{_MODEL}PartialUpdateAvroPayload"},
        refused="PartialUpdateAvroPayload",
    ),
    "cow_v9_renamed": Shape(
        (
            FIRST,
            sql(
                "set hoodie.schema.on.read.enable=true",
                "set hoodie.datasource.write.schema.allow.auto.evolution.column.drop=true",
                "alter table {t} rename column amount to total",
                "set hoodie.schema.on.read.enable=false",
                "set hoodie.datasource.write.schema.allow.auto.evolution.column.drop=false",
            ),
        ),
        mor=False,
        options={"hoodie.schema.on.read.enable": "true"},
        refused="total",
    ),
    "cow_v9_no_keys": Shape(
        (write(rows(range(24)), "bulk_insert"),),
        mor=False,
        options={f"hoodie.datasource.write.{name}.field": NOT_GIVEN for name in ("recordkey", "precombine")},
        refused="key",
    ),
}  # fmt: skip
SHAPES = {**WRITTEN, **READ}
