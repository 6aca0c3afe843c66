"""Keys that say which table is written, and what its keys, partitions and ordering are.

Partitions by time: the keys of the TIMESTAMP and CUSTOM key generators have Hudi's names and defaults
(TimestampKeyGeneratorConfig).
"""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind
from tagstream.table.keys.time_partition import OLD_PREFIX, PREFIX
from tagstream.table.read.stored_keys import CHECK_STORED
from tagstream.table.table_version import VERSIONS

_TABLE = "Table"
_KEYGEN = "org.apache.hudi.keygen."
NEW_ENCODING = "hoodie.write.complex.keygen.new.encoding"

_OP = (
    "records are upserted, or with INSERT_OVERWRITE take the place of partitions; deletes are upserts with "
    "`_hoodie_is_deleted` or Kafka tombstones. Remove it: a first load is an upsert into an empty table, or write the "
    "table with Hudi's bulk insert and start the stream on it, which loads the index from the table"
)
_GENERATORS = (
    "key generators of this version are simple, complex, non-partitioned, timestamp and custom ones, which take keys and "
    "partitions from fields of the record"
)

TABLE_KEYS = (
    ConfigKey(
        "hoodie.base.path",
        Kind.PATH,
        "Folder of the table; it is created when it does not exist.",
        flag="--target-base-path",
        default_note="required",
        section=_TABLE,
    ),
    ConfigKey(
        "hoodie.table.name",
        Kind.STRING,
        "Name of the table.",
        flag="--target-table",
        section=_TABLE,
        aliases=("hoodie.datasource.write.table.name",),
        default_note="required for a new table; else the table's own",
    ),
    ConfigKey(
        "hoodie.database.name",
        Kind.STRING,
        "Database name written to a new table's properties.",
        default_note="none",
        section=_TABLE,
    ),
    ConfigKey(
        "hoodie.datasource.write.table.type",
        Kind.CHOICE,
        "Table type; an existing table's must be the same.",
        default="COPY_ON_WRITE",
        flag="--table-type",
        section=_TABLE,
        aliases=("hoodie.table.type",),
        values={"COPY_ON_WRITE": "COPY_ON_WRITE", "MERGE_ON_READ": "MERGE_ON_READ"},
    ),
    ConfigKey(
        "hoodie.datasource.write.operation",
        Kind.CHOICE,
        "What is done with the records. `INSERT_OVERWRITE` (with BLOOM, SIMPLE, their global forms "
        "or BUCKET): each batch takes the place of all that the partitions it touches hold; deletes have no effect.",
        default="UPSERT",
        flag="--op",
        section=_TABLE,
        values={"UPSERT": "UPSERT", "INSERT_OVERWRITE": "INSERT_OVERWRITE"},
        refused_values=dict.fromkeys(
            (
                "INSERT",
                "BULK_INSERT",
                "DELETE",
                "DELETE_PARTITION",
                "INSERT_OVERWRITE_TABLE",
                "BOOTSTRAP",
                "UPSERT_PREPPED",
                "INSERT_PREPPED",
                "BULK_INSERT_PREPPED",
                "DELETE_PREPPED",
            ),
            _OP,
        ),
    ),
    ConfigKey(
        "hoodie.write.table.version",
        Kind.CHOICE,
        "Version of a new table. An existing one keeps its own, but for a lower one where this key is given "
        "(`hoodie.write.auto.upgrade`). Hudi 0.x knows version 6 alone, 1.0 writes 8, 1.1 and 1.2 "
        "write 9.",
        default="6",
        section=_TABLE,
        values={str(number): str(number) for number in VERSIONS},
        aliases=("hoodie.table.version",),
        refused_values={
            "7": "no release of Hudi makes tables of version 7",
            "10": "this version of the table is not known",
        },
    ),
    ConfigKey(
        "hoodie.write.auto.upgrade",
        Kind.BOOL,
        "A table of a lower version than `hoodie.write.table.version`, where that is given, is brought to it at the start "
        "(as `tagstream table upgrade` does). False: it keeps its own.",
        default=True,
        section=_TABLE,
    ),
    ConfigKey(
        "hoodie.datasource.write.recordkey.field",
        Kind.LIST,
        "Fields that make up the record key; a field of a struct by its path, `meta.id` (of records in JSON or "
        "plain Avro, and typed rows).",
        default=(),
        default_note="required for a new table; else the table's own",
        section=_TABLE,
        aliases=("hoodie.table.recordkey.fields",),
    ),
    ConfigKey(
        "hoodie.datasource.write.partitionpath.field",
        Kind.LIST,
        "Fields that make up the partition path; empty: the table has no partitions. A value is taken as it is: of a "
        "timestamp column it is the number, and each millisecond would be a partition; to partition by day, take the "
        "TIMESTAMP key generator. With the CUSTOM one each field has a kind, `city:SIMPLE,at:TIMESTAMP`.",
        default=(),
        section=_TABLE,
        aliases=("hoodie.table.partition.fields",),
    ),
    ConfigKey(
        "hoodie.datasource.write.hive_style_partitioning",
        Kind.BOOL,
        "Partition folders are named `field=value`.",
        default=False,
        section=_TABLE,
    ),
    ConfigKey(
        "hoodie.datasource.write.partitionpath.urlencode",
        Kind.BOOL,
        "Special characters of a partition value become `%XX`. Without it `/` in a value makes folder levels. "
        "All partitions of a table are equally deep, as those of its newest commit are, or in a new table those of most "
        "records of the first batch: readers do not find a partition inside another. A record that comes with another "
        "depth is quarantined.",
        default=False,
        section=_TABLE,
    ),
    ConfigKey(
        "hoodie.datasource.write.drop.partition.columns",
        Kind.BOOL,
        "The partition columns are not in the files, as BigQuery wants it: keys and paths are made of the whole record, and "
        "readers take the values from the path, as texts and behind the other columns, as Hudi does. A record whose value "
        "its path would not give back is quarantined. Not with times in the paths, nor with a record key or ordering field "
        "that is a partition column.",
        default=False,
        section=_TABLE,
    ),
    ConfigKey(
        "hoodie.datasource.write.keygenerator.type",
        Kind.CHOICE,
        "Key generator, by type.",
        section=_TABLE,
        default_note="SIMPLE for one key and one partition field, NON_PARTITION for no partition field, else COMPLEX",
        values={
            "SIMPLE": "SIMPLE",
            "COMPLEX": "COMPLEX",
            "NON_PARTITION": "NON_PARTITION",
            "TIMESTAMP": "TIMESTAMP",
            "CUSTOM": "CUSTOM",
            "SIMPLE_AVRO": "SIMPLE",
            "COMPLEX_AVRO": "COMPLEX",
            "NON_PARTITION_AVRO": "NON_PARTITION",
            "TIMESTAMP_AVRO": "TIMESTAMP",
            "CUSTOM_AVRO": "CUSTOM",
        },
        refused_values=dict.fromkeys(("GLOBAL_DELETE", "GLOBAL_DELETE_AVRO"), _GENERATORS),
    ),
    ConfigKey(
        "hoodie.datasource.write.keygenerator.class",
        Kind.CHOICE,
        "Key generator, by Hudi's class name.",
        section=_TABLE,
        default_note="see `hoodie.datasource.write.keygenerator.type`",
        aliases=("hoodie.table.keygenerator.class",),
        values={
            (prefix + name).upper(): kind
            for prefix in ("", _KEYGEN)
            for name, kind in (
                ("SimpleKeyGenerator", "SIMPLE"),
                ("SimpleAvroKeyGenerator", "SIMPLE"),
                ("ComplexKeyGenerator", "COMPLEX"),
                ("ComplexAvroKeyGenerator", "COMPLEX"),
                ("NonpartitionedKeyGenerator", "NON_PARTITION"),
                ("NonpartitionedAvroKeyGenerator", "NON_PARTITION"),
                ("TimestampBasedKeyGenerator", "TIMESTAMP"),
                ("TimestampBasedAvroKeyGenerator", "TIMESTAMP"),
                ("CustomKeyGenerator", "CUSTOM"),
                ("CustomAvroKeyGenerator", "CUSTOM"),
            )
        },
        refused_values={
            (prefix + name).upper(): _GENERATORS
            for prefix in ("", _KEYGEN)
            for name in (
                "GlobalDeleteKeyGenerator",
                "GlobalAvroDeleteKeyGenerator",
                "AutoRecordGenWrapperKeyGenerator",
                "AutoRecordGenWrapperAvroKeyGenerator",
            )
        },
    ),
    ConfigKey(
        NEW_ENCODING,
        Kind.BOOL,
        "How the complex key generator writes the key of one field in a new table of version 6 or 8: `true` is the value "
        "alone (`k1`), as Hudi 0.14.1 to 1.0.2 write it, `false` is `id:k1`, as Hudi writes it before and after. Version 9 "
        "has the value alone. The rows of an existing table decide; a value that contradicts them is refused. Hudi 1.1 and "
        "newer refuse to write such a table of version 6 or 8 until `hoodie.write.complex.keygen.validation.enable=false` "
        "is given, with this key as the table has it.",
        default_note="`true`, on an existing table what its rows have",
        section=_TABLE,
    ),
    ConfigKey(
        CHECK_STORED,
        Kind.BOOL,
        "A start makes record keys and partition paths of a few stored rows of up to 16 partitions, and refuses the table "
        "where the rows have others: another key generator, or other flags of it, would double every row or move it "
        "beside its partition. `false` starts in spite of it.",
        default=True,
        section=_TABLE,
    ),
    ConfigKey(
        "tagstream.key.collisions",
        Kind.CHOICE,
        "Keys of several fields are `a:1,b:2`, so the values `1,b:2` and `3` make the same key as `1` and `2,b:3`, and the "
        "text `__null__` that of a null: such rows overwrite each other, in Hudi as here. `quarantine` takes records out "
        "whose value holds a comma, the name of a later key field and a colon, or is such a placeholder.",
        default="allow",
        section=_TABLE,
        values={"ALLOW": "allow", "QUARANTINE": "quarantine"},
    ),
    ConfigKey(
        "hoodie.table.ordering.fields",
        Kind.LIST,
        "The field whose greater value is the newer event; a field of a struct by its path, "
        "`meta.ts` (of records in JSON or plain Avro, and typed rows). Of several fields the first that differs "
        "decides; they need a table of version 8 or 9, and a record that lacks one of them is quarantined. "
        "Without it the position in the source decides, which files do not have: they need one. A decimal "
        "of a merge-on-read table has at most 15 digits before the point and 15 after it, which is what a delete in a log "
        "file holds: a type with more after it is refused, a record with more before it is quarantined. Texts are "
        "compared by code points, where Java compares UTF-16 units: that differs only between a character of "
        "U+E000 to U+FFFF and one above U+FFFF.",
        default=(),
        flag="--source-ordering-fields",
        flag_aliases=("--source-ordering-field",),
        section=_TABLE,
        aliases=("hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field"),
    ),
    ConfigKey(
        "hoodie.write.record.merge.mode",
        Kind.CHOICE,
        "Follows from the ordering field; a contradiction is refused.",
        section=_TABLE,
        default_note="EVENT_TIME_ORDERING with an ordering field, else COMMIT_TIME_ORDERING",
        aliases=("hoodie.record.merge.mode",),
        values={"EVENT_TIME_ORDERING": "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING": "COMMIT_TIME_ORDERING"},
        refused_values={"CUSTOM": "records are merged by event time or by commit time"},
    ),
)


_BY_TIME = "Partitions by time"
_TIME_TYPES = ("UNIX_TIMESTAMP", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS", "SCALAR", "DATE_STRING", "MIXED")
_TIME_TEXTS = {
    "timestamp.scalar.time.unit": "With SCALAR: NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS. A "
    "date column is its days.",
    "input.dateformat": "With DATE_STRING: how the texts are written, as a pattern of Joda time, for example "
    "`yyyy-MM-dd'T'HH:mm:ss.SSSZ`; several with commas, the first that fits counts. A text of none of them is quarantined.",
    "input.dateformat.list.delimiter.regex": "What stands between several patterns.",
    "input.timezone": "The zone of texts that name none.",
    "output.dateformat": "The partition path, as a pattern of Joda time, for example `yyyy/MM/dd`: y, M, d, H, m, s, S, Z "
    "and text in quotes.",
    "output.timezone": "The zone of the partition path. Without it texts keep the time as it is written, and numbers are in "
    "UTC.",
    "timezone": "The zone of both, in place of the two above.",
}
_TIME_DEFAULTS = {"timestamp.scalar.time.unit": "`SECONDS`", "input.dateformat.list.delimiter.regex": "`,`"}


def _time_spelled(name: str) -> tuple[str, ...]:
    return (OLD_PREFIX + name, f"hoodie.streamer.keygen.timebased.{name}")


def _time_key(name: str, text: str) -> ConfigKey:
    return ConfigKey(
        PREFIX + name,
        Kind.STRING,
        text,
        default_note=_TIME_DEFAULTS.get(name, ""),
        aliases=_time_spelled(name),
        section=_BY_TIME,
    )


PARTITION_TIME_KEYS = (
    ConfigKey(
        f"{PREFIX}timestamp.type",
        Kind.CHOICE,
        "What the values of a partition field of times are: numbers of seconds, milliseconds, microseconds or of a unit "
        "since 1970, or texts.",
        default_note="required by the TIMESTAMP key generator, and by a field of kind TIMESTAMP of the CUSTOM one",
        values={name: name for name in _TIME_TYPES},
        aliases=_time_spelled("timestamp.type"),
        section=_BY_TIME,
    ),
    *(_time_key(name, text) for name, text in _TIME_TEXTS.items()),
)
