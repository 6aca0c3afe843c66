"""What a history is about: table, stream, index and services, drawn from a seed; and the job's command line for them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random
from typing import Any

from tagstream.table.meta_client.table_config import CDC_KEY, CDC_MODE_KEY
from tagstream.table.timeline.operation import APPENDS, OVERWRITES
from tests.simulation.layouts import LAYOUTS, Layout
from tests.simulation.topic import TOPIC
from tests.simulation.values import BY_NAME, COLUMNS, ORDERINGS

MERGE_ON_READ, COPY_ON_WRITE = "MERGE_ON_READ", "COPY_ON_WRITE"
MOVES = {
    "GLOBAL_RECORD_LEVEL_INDEX": "hoodie.record.index.update.partition.path",
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
}
_MAY_OVERWRITE = ("SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "BUCKET")
NON_GLOBAL = ("SIMPLE", "BLOOM", "BUCKET", "RECORD_LEVEL_INDEX")


@dataclass(frozen=True)
class Settings:
    """A value of JSON: a failing history prints it, and it runs again from there.

    ``layout``: where rows lie (``layouts.LAYOUTS``). ``two_keys``: a row has two record key fields. ``stays``: a row that
    comes with another partition stays where it is. ``changes``: events are those of a database, "lsn" without an ordering
    field, "field" with one; ``toast``: values that did not change are not sent; ``truncates``: it is truncated now and
    then. ``by_partition``: partition and key together identify a row. ``partial``: records may lack fields. ``metadata``:
    the partitions of the metadata table, "" for none. ``services``: properties that the stream runs its services with.
    ``remembers``: no checkpoint is lost, so events come late for deleted keys, too. ``streams``: how many write to the table
    at the same time, under its lock, each with events of the same keys. ``change_files``: what the table logs of its changes
    (``LoggingMode``), "" for nothing. ``rings``: its buckets are those of consistent hashing, and clusterings resize them.
    ``operation``: what the stream does with records, "" for UPSERT. With another one each event has a key of its own.
    ``source``: the form of the files that the events are in, "" for a topic.
    """

    version: int = 6
    table_type: str = COPY_ON_WRITE
    index: str = "FLINK_STATE"
    layout: str = "text"
    two_keys: bool = False
    stays: bool = False
    changes: str = ""
    toast: bool = False
    truncates: bool = False
    by_partition: bool = False
    partial: bool = False
    ordering: str = "long"
    second_ordering: bool = False
    columns: tuple[str, ...] = ("txt", "lng")
    partitions: int = 2
    keys: int = 20
    metadata: str = ""
    base_inserts: str = ""
    small_file_limit: int = 100 << 20
    max_file_size: int = 120 << 20
    insert_split: int = 500_000
    key_groups: int = 2
    services: tuple[tuple[str, str], ...] = ()
    remembers: bool = False
    streams: int = 1
    change_files: str = ""
    rings: bool = False
    operation: str = ""
    source: str = ""

    @staticmethod
    def draw(random: Random) -> Settings:
        """Some that the job accepts."""
        version = random.choice((6, 8, 9))
        table_type = random.choice((COPY_ON_WRITE, MERGE_ON_READ))
        index = random.choices(
            ("FLINK_STATE", "GLOBAL_RECORD_LEVEL_INDEX", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", *NON_GLOBAL),
            (60, 10, 5, 5, 5, 5, 5, 5),
        )[0]
        if index == "RECORD_LEVEL_INDEX" and version < 8:
            index = "GLOBAL_RECORD_LEVEL_INDEX"
        state = index == "FLINK_STATE"
        by_partition = index in NON_GLOBAL or (state and random.random() < 0.15)
        changes = random.choice(("", "", "lsn", "field")) if state and not by_partition else ""
        partial = state and not by_partition and not changes and random.random() < 0.25
        toast = bool(changes) and random.random() < 0.6
        ordering = random.choice([name for name in ORDERINGS if not (partial and name == "string")])
        names = [c.name for c in COLUMNS]
        layout = random.choice(("text", *LAYOUTS)) if random.random() < 0.7 else "text"
        if layout == "none":
            by_partition = False if state else by_partition
        return Settings(
            version=version,
            table_type=table_type,
            index=index,
            layout=layout,
            two_keys=layout != "days" and random.random() < 0.2,  # the key generator of times takes one field
            stays=index in MOVES and random.random() < 0.4,
            changes=changes,
            toast=toast,
            truncates=changes == "lsn" and random.random() < 0.4,
            by_partition=by_partition,
            partial=partial,
            ordering=ordering,
            second_ordering=not changes and version >= 8 and random.random() < 0.2,
            columns=tuple(sorted(random.sample(names, random.choice((2, 4, len(names)))), key=names.index)),
            partitions=random.choice((1, 2, 5)),
            keys=random.choice((3, 20, 60)),
            metadata=_metadata(random, version, index, by_partition=by_partition),
            base_inserts=random.choice(("", "true", "false", "first")) if table_type == MERGE_ON_READ and state else "",
            small_file_limit=random.choice((0, 20_000, 100 << 20)),
            max_file_size=random.choice((30_000, 120 << 20)),
            insert_split=random.choice((5, 500_000)),
            key_groups=random.choice((1, 2, 3)),
            services=_services(random, table_type, clusters=index != "BUCKET", cleans=not toast),
            remembers=state and not changes and random.random() < 0.5,
        )

    def shared(self) -> Settings:
        """With a second stream, where two may share a table as the oracle knows it."""
        may = self.index == "FLINK_STATE" and not self.changes and not self.partial
        return replace(self, streams=2) if may else self

    def with_operation(self, random: Random) -> Settings:
        """With an operation that appends or replaces rows, where the job accepts it and the oracle knows it."""
        if self.changes or self.partial or self.streams > 1 or self.rings:
            return self
        may = [] if self.index == "BUCKET" else sorted(APPENDS)
        may += sorted(OVERWRITES) if self.index in _MAY_OVERWRITE else []
        return replace(self, operation=random.choice(may), base_inserts="", stays=False) if may else self

    def with_files(self, random: Random) -> Settings:
        """With a source of files, where the events can be in some."""
        if self.changes or self.streams > 1 or self.operation:
            return self
        return replace(self, source="json" if self.partial else random.choice(("json", "parquet")))

    def with_rings(self, random: Random) -> Settings:
        """With consistent hashing, where buckets can have it; the stream mostly resizes them itself."""
        if self.index != "BUCKET" or self.table_type != MERGE_ON_READ:
            return self
        mode = random.choice(("inline", "async.enabled", ""))
        told = {
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
            "hoodie.bucket.index.max.num.buckets": random.choice(("2", "5", "16")),
            "hoodie.bucket.index.min.num.buckets": random.choice(("1", "2")),
            "hoodie.bucket.index.split.threshold": random.choice(("2.0", "0.000001", "0.05")),
            "hoodie.bucket.index.merge.threshold": random.choice(("0.2", "0.000001")),
        }
        if mode:
            told[f"hoodie.clustering.{mode}"] = "true"
            told[f"hoodie.clustering.{mode.removesuffix('.enabled')}.max.commits"] = random.choice(("1", "2"))
        return replace(self, rings=True, services=tuple(sorted({**dict(self.services), **told}.items())))

    @staticmethod
    def from_json(doc: dict[str, Any]) -> Settings:
        """What :meth:`to_json` gave; names that are missing have their defaults."""
        own = {f.name for f in fields(Settings)}
        told = {k: v for k, v in doc.items() if k in own}
        for name in ("columns",):
            if name in told:
                told[name] = tuple(told[name])
        if "services" in told:
            told["services"] = tuple((key, value) for key, value in told["services"])
        return Settings(**told)

    def to_json(self) -> dict[str, Any]:
        """What is not as by default."""
        plain = Settings()
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != getattr(plain, f.name)}

    @property
    def place(self) -> Layout:
        """Where rows lie."""
        return LAYOUTS[self.layout]

    def schema(self, columns: tuple[str, ...]) -> str:
        """The record schema with these columns."""
        ordering: list[dict[str, Any]] = [{"name": "ts", "type": ORDERINGS[self.ordering][0]}]
        if self.second_ordering:
            ordering.append({"name": "seq", "type": "long"})
        own = [BY_NAME[name].field for name in columns]
        return json.dumps(
            {
                "type": "record",
                "name": "event",
                "fields": [
                    {"name": "id", "type": "string"},
                    *([{"name": "sub", "type": "int"}] if self.two_keys else []),
                    *({"name": name, "type": kind, "default": None} for name, kind in self.place.types.items()),
                    *ordering,
                    *own,
                    *([] if self.changes else [{"name": "_hoodie_is_deleted", "type": "boolean", "default": False}]),
                ],
            }
        )

    def properties(self, schema: Path, local: Path) -> dict[str, str]:
        """The job's properties."""
        told = {
            "hoodie.datasource.write.recordkey.field": "id,sub" if self.two_keys else "id",
            **self.place.properties,
            "hoodie.write.table.version": str(self.version),
            "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
            **({} if self.source else _TOPIC),
            "hoodie.index.bloom.num_entries": "100",
            "hoodie.parquet.small.file.limit": str(self.small_file_limit),
            "hoodie.parquet.max.file.size": str(self.max_file_size),
            "hoodie.copyonwrite.insert.split.size": str(self.insert_split),
            "index.local.dir": str(local),
            "index.key.groups": str(self.key_groups),
            "spark.sql.shuffle.partitions": "2",
            "hoodie.metadata.enable": str(bool(self.metadata)).lower(),
            **dict(self.services),
        }
        if self.streams > 1:
            told |= {
                "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
                "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
                "hoodie.write.lock.wait_time_ms": "1",
                "hoodie.write.lock.client.num_retries": "0",
            }
        if self.change_files:
            told |= {CDC_KEY: "true", CDC_MODE_KEY: self.change_files}
        state = self.index == "FLINK_STATE"
        if self.changes:
            told["tagstream.source.format"] = "debezium-json"
        if self.changes != "lsn":
            told["hoodie.table.ordering.fields"] = "ts,seq" if self.second_ordering else "ts"
        if self.truncates:
            told["tagstream.debezium.truncate"] = "delete"
        if state:
            told["index.type"] = "FLINK_STATE"
            told["index.global.enabled"] = str(not self.by_partition).lower()
        else:
            told["hoodie.index.type"] = self.index
        if self.index in MOVES:
            told[MOVES[self.index]] = str(not self.stays).lower()
        if self.index == "BUCKET":
            told["hoodie.bucket.index.num.buckets"] = "2"
        if self.partial:
            told["hoodie.write.partial.update"] = "true"
        if self.base_inserts:
            told["tagstream.inserts.to.base.files"] = self.base_inserts
        for name, key in _PARTITIONS.items():
            if name in self.metadata.split(","):
                told[key] = "true"
            elif self.metadata and name in ("column_stats", "partition_stats"):
                told[key] = "false"
        return told

    def arguments(self, folder: Path, schema: Path, stream: int = 0, operation: str = "") -> list[str]:
        """The command line of the job. ``stream``: which of those that share the table. ``operation``: for this run."""
        name = f"-{stream}" if stream else ""
        source = f"{self.source.title()}DFSSource" if self.source else "JsonKafkaSource"
        out = ["--source-class", source, "--target-table", "t", "--table-type", self.table_type]
        out += ["--target-base-path", str(folder / "table"), "--checkpoint-dir", str(folder / f"checkpoint{name}")]
        told = self.properties(schema, folder / f"local{name}")
        if self.source:
            told["hoodie.streamer.source.dfs.root"] = str(folder / "in")
        if stream:
            told["hoodie.datasource.write.streaming.checkpoint.identifier"] = f"{TOPIC}{name}"
            told["index.key.groups"] = "2"  # whatever the first one was rescaled to
        if operation:  # which keeps no values of a row
            told.pop("hoodie.write.partial.update", None)
        if operation or self.operation:
            out += ["--op", operation or self.operation]
        for key, value in told.items():
            out += ["--hoodie-conf", f"{key}={value}"]
        return out


_TOPIC = {
    "hoodie.streamer.source.kafka.topic": TOPIC,
    "bootstrap.servers": "localhost:1",
    "auto.offset.reset": "earliest",
}
_PARTITIONS = {
    "column_stats": "hoodie.metadata.index.column.stats.enable",
    "partition_stats": "hoodie.metadata.index.partition.stats.enable",
    "bloom_filters": "hoodie.metadata.index.bloom.filter.enable",
    "global_record_index": "hoodie.metadata.global.record.level.index.enable",
    "record_index": "hoodie.metadata.record.level.index.enable",
}


def _metadata(random: Random, version: int, index: str, *, by_partition: bool) -> str:
    """The partitions of the metadata table; "" for none."""
    needs = {"GLOBAL_RECORD_LEVEL_INDEX": "global_record_index", "RECORD_LEVEL_INDEX": "record_index"}.get(index)
    if needs is None and random.random() < 0.35:
        return ""
    found = ["files"]
    if random.random() < 0.7:
        found.append("column_stats")
        if version >= 8 and random.random() < 0.6:
            found.append("partition_stats")
    if random.random() < 0.4:
        found.append("bloom_filters")
    if needs is not None:
        found.append(needs)
    elif index == "FLINK_STATE" and random.random() < 0.3 and (version >= 8 or not by_partition):
        found.append("record_index" if by_partition else "global_record_index")
    return ",".join(found)


def _services(random: Random, table_type: str, *, clusters: bool, cleans: bool) -> tuple[tuple[str, str], ...]:
    """Services that the stream runs itself, between its batches or beside them. ``cleans``: whether it may be that a row is
    gone that was deleted a moment before."""
    told = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
    kept = random.choice((1, 2, 4))
    if random.random() < 0.5 and cleans:
        told["hoodie.clean.automatic"] = "true"
        told["hoodie.clean.async.enabled"] = str(random.random() < 0.3).lower()
        told["hoodie.clean.commits.retained"] = str(kept)
        if random.random() < 0.25:
            told["hoodie.clean.policy"] = "KEEP_LATEST_FILE_VERSIONS"
            told["hoodie.clean.fileversions.retained"] = str(random.choice((1, 2)))
    if random.random() < 0.5:
        told["hoodie.archive.automatic"] = "true"
        told["hoodie.keep.min.commits"] = str(kept + 1)
        told["hoodie.keep.max.commits"] = str(kept + 2)
        told.setdefault("hoodie.clean.commits.retained", str(kept))
    mode = random.choice(("inline", "async", "schedule", "off"))
    if table_type == MERGE_ON_READ and mode == "schedule":
        told["hoodie.compact.schedule.inline"] = "true"
        told["hoodie.compact.inline.max.delta.commits"] = str(random.choice((1, 2, 3)))
    elif table_type == MERGE_ON_READ and mode != "off":
        told["hoodie.compact.inline" if mode == "inline" else "hoodie.datasource.compaction.async.enable"] = "true"
        told["hoodie.compact.inline.max.delta.commits"] = str(random.choice((1, 2, 3)))
    elif table_type == MERGE_ON_READ:
        told["hoodie.datasource.write.streaming.disable.compaction"] = "true"
    mode = random.choice(("inline", "async", "off", "off"))
    if mode != "off" and clusters:
        told[f"hoodie.clustering.{mode}" + (".enabled" if mode == "async" else "")] = "true"
        told[f"hoodie.clustering.{mode}.max.commits"] = str(random.choice((2, 3)))
    told["hoodie.metadata.compact.max.delta.commits"] = str(random.choice((1, 2, 4, 10)))
    return tuple(sorted(told.items()))
