"""The options that are paired, their values, and which pairs a start refuses with which line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Case = Mapping[str, str]  # a value's name by its option's
Pair = frozenset[tuple[str, str]]

KEY, PARTITION = "hoodie.datasource.write.recordkey.field", "hoodie.datasource.write.partitionpath.field"
KEY_TYPE, KEY_CLASS = "hoodie.datasource.write.keygenerator.type", "hoodie.datasource.write.keygenerator.class"
ONE_START = "one for all batches"
_VERSION, _ORDERING = "hoodie.write.table.version", "hoodie.table.ordering.fields"
_TIMES = "hoodie.keygen.timebased."
_MDT = "hoodie.metadata."
_GENERATORS = {
    "SIMPLE": "Simple", "COMPLEX": "Complex", "NON_PARTITION": "Nonpartitioned", "TIMESTAMP": "TimestampBased",
    "CUSTOM": "Custom",
}  # fmt: skip

_NUMBERS = {f"{_TIMES}timestamp.type": "EPOCHMILLISECONDS", f"{_TIMES}output.dateformat": "yyyy/MM/dd"}
_TEXTS = {
    f"{_TIMES}timestamp.type": "DATE_STRING",
    f"{_TIMES}input.dateformat": "yyyy-MM-dd HH:mm:ss",
    f"{_TIMES}output.dateformat": "yyyy-MM-dd",
}
_STATISTICS = {
    f"{_MDT}enable": "true",
    f"{_MDT}index.column.stats.enable": "true",
    f"{_MDT}index.partition.stats.enable": "true",
    f"{_MDT}index.bloom.filter.enable": "true",
    "hoodie.bloom.index.use.metadata": "true",
}
_EVERY_COMMIT = {"hoodie.compact.inline.max.delta.commits": "1"}
_CLUSTERING = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.clustering.plan.strategy.sort.columns": "ts",
}
_BESIDE = {
    "hoodie.datasource.compaction.async.enable": "true",
    "hoodie.clustering.async.enabled": "true",
    "hoodie.clustering.async.max.commits": "1",
    "hoodie.clean.async.enabled": "true",
}
_CLEANING = {"hoodie.clean.commits.retained": "1"}
_ARCHIVING = {**_CLEANING, "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}

# Values by option; a value is its properties. Layouts, how their generator is said and sources have more (`properties`).
OPTIONS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "version": {version: {_VERSION: version} for version in ("6", "8", "9")},
    "type": {kind: {"hoodie.datasource.write.table.type": kind} for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")},
    "key": {"one": {KEY: "id"}, "several": {KEY: "id,sub"}, "number": {KEY: "num"}},
    "layout": {
        "none": {PARTITION: ""},
        "text": {PARTITION: "city"},
        "text, complex": {PARTITION: "city"},
        "date": {PARTITION: "day"},
        "number": {PARTITION: "zone"},
        "two fields": {PARTITION: "city,zone"},
        "times": {PARTITION: "at", **_NUMBERS},
        "texts of times": {PARTITION: "told", **_TEXTS},
        "custom": {PARTITION: "city:SIMPLE,at:TIMESTAMP", **_NUMBERS},
    },
    "generator": {"unsaid": {}, "type": {}, "class": {}, "Avro class": {}},
    "hive style": {flag: {"hoodie.datasource.write.hive_style_partitioning": flag} for flag in ("false", "true")},
    "encoding": {flag: {"hoodie.datasource.write.partitionpath.urlencode": flag} for flag in ("false", "true")},
    "ordering": {"none": {}, "one": {_ORDERING: "ts"}, "several": {_ORDERING: "ts,seq"}},
    "index": {
        "STATE": {},
        "STATE by partition": {"index.global.enabled": "false"},
        "BLOOM": {},
        "GLOBAL_BLOOM": {},
        "GLOBAL_BLOOM, rows stay": {"hoodie.bloom.index.update.partition.path": "false"},
        "SIMPLE": {},
        "GLOBAL_SIMPLE": {},
        "GLOBAL_SIMPLE, rows stay": {"hoodie.simple.index.update.partition.path": "false"},
        "BUCKET": {"hoodie.bucket.index.num.buckets": "3"},
        "RECORD_INDEX": {"hoodie.record.index.update.partition.path": "true"},
        "RECORD_INDEX, rows stay": {},
        "RECORD_LEVEL_INDEX": {},
        "INMEMORY": {},
    },
    "metadata": {
        "unsaid": {},
        "off": {f"{_MDT}enable": "false"},
        "on": {f"{_MDT}enable": "true"},
        "statistics": _STATISTICS,
        "statistics, simple filters": {**_STATISTICS, "hoodie.bloom.index.filter.type": "SIMPLE"},
        "record index": {f"{_MDT}enable": "true", f"{_MDT}record.index.enable": "true"},
        "record index by partition": {f"{_MDT}enable": "true", f"{_MDT}record.level.index.enable": "true"},
    },
    "services": {
        "unsaid": {},
        "none": {
            "hoodie.datasource.write.streaming.disable.compaction": "true",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
        },
        "compaction": _EVERY_COMMIT,
        "clustering": _CLUSTERING,
        "cleaning": _CLEANING,
        "archiving": _ARCHIVING,
        "all": {**_EVERY_COMMIT, **_CLUSTERING, **_ARCHIVING},
        "beside the batches": {**_EVERY_COMMIT, **_BESIDE, **_ARCHIVING},
    },
    "inserts": {"unsaid": {}, **{how: {"tagstream.inserts.to.base.files": how} for how in ("true", "first", "false")}},
    "file sizes": {
        "unsaid": {},
        "no small files": {"hoodie.parquet.small.file.limit": "0"},
        "tiny": {"hoodie.parquet.max.file.size": "2048", "hoodie.parquet.small.file.limit": "1024"},
    },
    "codec": {
        "unsaid": {},
        **{name: {"hoodie.parquet.compression.codec": name} for name in ("gzip", "snappy", "zstd", "uncompressed")},
    },
    "source": {
        "json": {},
        "json by SQL": {},
        "debezium-json": {},
        "debezium-json with schemas": {},
        "debezium-flat-json": {},
        "maxwell-json": {},
        "canal-json": {},
        "DataFrame": {},
    },
    "starts": {ONE_START: {}, "one for each batch": {}},
}

# What is not here, and why.
LEFT_OUT = {
    "avro, debezium-avro": "read from Kafka alone, and need a schema registry; a start on files refuses them",
    "JsonKafkaSource": "needs a broker: tests/streaming has streams of each format from one",
    "HBASE": "needs a server: tests/behaviours and docs/guide/indexes.md",
}

ENVELOPES = ("debezium-json", "debezium-json with schemas")
STATES = ("STATE", "STATE by partition")
BY_PARTITION = ("STATE by partition", "BLOOM", "SIMPLE", "BUCKET", "RECORD_LEVEL_INDEX")
ROWS_STAY = tuple(name for name in OPTIONS["index"] if name.endswith("rows stay"))
_GLOBAL_RECORD_INDEX = ("RECORD_INDEX", "RECORD_INDEX, rows stay")


@dataclass(frozen=True)
class Refusal:
    """Values of two options that a start refuses together. ``line``: a regular expression that its one line has."""

    one: str
    ones: tuple[str, ...]
    other: str
    others: tuple[str, ...]
    line: str

    def pairs(self) -> Iterator[Pair]:
        """Each pair of one value of both."""
        for first in self.ones:
            for second in self.others:
                yield frozenset({(self.one, first), (self.other, second)})


# Each line names the key, and what to do.
REFUSALS = (
    Refusal(
        "version", ("6",), "ordering", ("several",),
        r"several ordering fields \(ts, seq, .*\), which tables of version 6 do not support: set hoodie.write.table.version",
    ),
    Refusal(
        "version", ("6",), "index", ("RECORD_LEVEL_INDEX",),
        r"would get version 6, whose readers .* set hoodie.write.table.version=8 or 9, or use the global one",
    ),
    Refusal(
        "version", ("6",), "metadata", ("record index by partition",),
        r"would get version 6, whose readers .* set hoodie.write.table.version=8 or 9, or use the global one",
    ),
    Refusal(
        "index", (*_GLOBAL_RECORD_INDEX, "RECORD_LEVEL_INDEX"), "metadata", ("off",),
        r"hoodie.metadata.enable = false .*: hoodie.index.type=RECORD_\w+ is in the metadata table; remove one",
    ),
    Refusal(
        "index", ("BUCKET",), "metadata", ("record index", "record index by partition"),
        r"hoodie.index.type=BUCKET does not look up the keys of a bucket, .*; remove it, or use another index",
    ),
    Refusal(
        "index", ("STATE by partition", "BLOOM", "SIMPLE"), "metadata", ("record index",),
        r"a key can have a row in each partition, .* set hoodie.metadata.record.level.index.enable",
    ),
    Refusal(
        "index", ("RECORD_LEVEL_INDEX",), "metadata", ("record index",),
        r"a metadata table has one record index, and RECORD_LEVEL_INDEX is for the other form; remove one",
    ),
    Refusal(
        "index", _GLOBAL_RECORD_INDEX, "metadata", ("record index by partition",),
        r"a metadata table has one record index, and RECORD_INDEX is for the other form; remove one",
    ),
    Refusal(
        "index", ("BUCKET",), "services", ("clustering", "all", "beside the batches"),
        r"hoodie.clustering.(inline|async.enabled) = true .* and hoodie.index.type=BUCKET: .*; set the first to false",
    ),
    Refusal(
        "ordering", ("none",), "source", ("json", "json by SQL", "maxwell-json", "canal-json", "DataFrame"),
        r"(files|rows of a DataFrame) have no order: set hoodie.table.ordering.fields",
    ),
    Refusal(
        "ordering", ("none",), "index", tuple(name for name in OPTIONS["index"] if name not in STATES),
        r"(files|rows of a DataFrame) have no order: set hoodie.table.ordering.fields",
    ),
    Refusal(
        "key", ("several",), "layout", ("times", "texts of times"),
        r"it needs one key and one partition field, but there are 2 and 1; use CUSTOM, and .* \(\w+:TIMESTAMP, or SIMPLE",
    ),
)  # fmt: skip


def all_pairs() -> Iterator[Pair]:
    """Each pair of values of two options."""
    names = list(OPTIONS)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            for first in OPTIONS[one]:
                for second in OPTIONS[other]:
                    yield frozenset({(one, first), (other, second)})


def refused_pairs() -> dict[Pair, str]:
    """The line by each pair that is refused."""
    return {pair: refusal.line for refusal in REFUSALS for pair in refusal.pairs()}


def pairs_of(case: Case) -> Iterator[Pair]:
    """The pairs of a case, of those options that it has."""
    items = list(case.items())
    for at, one in enumerate(items):
        for other in items[at + 1 :]:
            yield frozenset({one, other})


def deletes_name_no_place(case: Case) -> bool:
    """Whether a delete of the source has nothing but its key, where partition and key name a row: each is a bad record."""
    return case["source"] in ENVELOPES and case["index"] in BY_PARTITION and case["layout"] != "none"


def lines_of(case: Case) -> list[str]:
    """The lines of which a start of the case must say one; none: it must start."""
    refused = refused_pairs()
    return list(dict.fromkeys(refused[pair] for pair in pairs_of(case) if pair in refused))


def properties(case: Case) -> dict[str, str]:
    """The properties of a case, those of its source and of files left out."""
    made: dict[str, str] = {}
    for name, value in case.items():
        made |= OPTIONS[name][value]
    if case["source"] in ("json by SQL", "DataFrame") and f"{_TIMES}timestamp.type" in made:
        made[f"{_TIMES}timestamp.type"] = made[f"{_TIMES}timestamp.type"].replace(
            "MILLI", "MICRO"
        )  # as Spark has times
    if case["index"] not in STATES:
        made["hoodie.index.type"] = case["index"].partition(",")[0]
    made |= _said_generator(case)
    return made


def generator_of(case: Case) -> str:
    """The key generator of a case's fields, by type."""
    layout = case["layout"]
    named = {"none": "NON_PARTITION", "times": "TIMESTAMP", "texts of times": "TIMESTAMP", "custom": "CUSTOM"}
    if layout in named:
        return named[layout]
    return "COMPLEX" if layout in ("text, complex", "two fields") or case["key"] == "several" else "SIMPLE"


def _said_generator(case: Case) -> dict[str, str]:
    """How the generator is named. One that does not follow from the fields is named in any case."""
    kind, how = generator_of(case), case["generator"]
    if how == "unsaid" and case["layout"] not in ("text, complex", "times", "texts of times", "custom"):
        return {}
    if how in ("unsaid", "type"):
        return {KEY_TYPE: kind}
    return {KEY_CLASS: f"org.apache.hudi.keygen.{_GENERATORS[kind]}{'Avro' if how == 'Avro class' else ''}KeyGenerator"}
