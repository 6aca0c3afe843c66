"""Options of the written table: its keys, partitions and ordering.

Partitions by time: the keys of the TIMESTAMP and CUSTOM key generators have Hudi's names and defaults
(TimestampKeyGeneratorConfig).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tagstream.table.config import ConfigKey, Kind
from tagstream.table.file_group.change_file import OLD_MODES, LoggingMode
from tagstream.table.keys.generators import (
    KEYGEN_PACKAGE,
    REFUSED_CLASSES,
    REFUSED_TYPES,
    KeyKind,
    class_spellings,
    type_spellings,
)
from tagstream.table.keys.time_partition import OLD_PREFIX, PREFIX, TimePartition
from tagstream.table.meta_client.table_config import CDC_KEY, CDC_MODE_KEY
from tagstream.table.option_fields import derived, option
from tagstream.table.read.stored_keys import CHECK_STORED
from tagstream.table.table_version import VERSIONS
from tagstream.table.timeline.operation import OVERWRITES

NEW_ENCODING = "hoodie.write.complex.keygen.new.encoding"

_OP = (
    "not an operation of a stream of records. `tagstream table insert-overwrite --partition` replaces the rows of a "
    "partition; the PREPPED operations are for callers inside Hudi"
)
_GENERATORS = (
    "key generators of this version are simple, complex, non-partitioned, timestamp and custom ones, "
    "which read keys and partitions from fields of the record"
)


_BY_TIME = "Partitions by time"
_TIME_TYPES = ("UNIX_TIMESTAMP", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS", "SCALAR", "DATE_STRING", "MIXED")
_TIME_TEXTS = {
    "timestamp.scalar.time.unit": "With SCALAR: NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS or "
    "DAYS. A date column counts days.",
    "input.dateformat": "With DATE_STRING: the pattern of the strings in Joda-Time's notation, for example "
    "`yyyy-MM-dd'T'HH:mm:ss.SSSZ`. Of several patterns, separated by commas, the first that matches is used. A string "
    "that matches none is quarantined.",
    "input.dateformat.list.delimiter.regex": "The separator between several patterns.",
    "input.timezone": "The zone of strings without a zone.",
    "output.dateformat": "The pattern of the partition path in Joda-Time's notation, for example `yyyy/MM/dd`: y, M, "
    "d, H, m, s, S, Z and quoted text.",
    "output.timezone": "The zone of the partition path. Without it strings keep their written time, and numbers are "
    "in UTC.",
    "timezone": "The zone of input and output; it replaces the two keys above.",
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


_TIME_KEYS = (
    ConfigKey(
        f"{PREFIX}timestamp.type",
        Kind.CHOICE,
        "The form of the values in a partition field of times: numbers of seconds, milliseconds, "
        "microseconds or another unit since 1970, or strings.",
        default_note="required by the TIMESTAMP key generator, and by a field of kind TIMESTAMP of the CUSTOM one",
        values={name: name for name in _TIME_TYPES},
        aliases=_time_spelled("timestamp.type"),
        section=_BY_TIME,
    ),
    *(_time_key(name, text) for name, text in _TIME_TEXTS.items()),
)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """``key_generator`` and ``merge_mode`` are derived from the fields if they are not given. ``time_fields``: partition
    fields with times in their paths, ``times``: the rules, ``time_keys``: the given keys for them."""

    base_path: str = derived(
        ConfigKey(
            "hoodie.base.path",
            Kind.PATH,
            "Folder of the table; it is created when it does not exist.",
            flag="--target-base-path",
            default_note="required",
        ),
    )
    name: str | None = option(
        "hoodie.table.name",
        Kind.STRING,
        "Name of the table.",
        flag="--target-table",
        aliases=("hoodie.datasource.write.table.name",),
        default_note="required for a new table; else the table's own",
    )
    database: str | None = option(
        "hoodie.database.name", Kind.STRING, "Database name written to a new table's properties.", default_note="none"
    )
    type: str = option(
        "hoodie.datasource.write.table.type",
        Kind.CHOICE,
        "Table type; an existing table's must be the same.",
        default="COPY_ON_WRITE",
        flag="--table-type",
        aliases=("hoodie.table.type",),
        values={"COPY_ON_WRITE": "COPY_ON_WRITE", "MERGE_ON_READ": "MERGE_ON_READ"},
    )
    operation: str = option(
        "hoodie.datasource.write.operation",
        Kind.CHOICE,
        "What is done with the records. `INSERT`: each becomes a new row, without a look-up of its key, in small files "
        "first. `BULK_INSERT`: the same, in new files. `DELETE`: each deletes the row of its key, whatever its ordering "
        "value is, and needs only the key fields. `INSERT_OVERWRITE` (with BLOOM, SIMPLE, their global forms or "
        "BUCKET): each batch replaces all existing rows of its partitions. `INSERT_OVERWRITE_TABLE` (with the same "
        "indexes, without `--continuous`): a run replaces all rows of the table, by one batch. With all inserts, deletes "
        "have no effect.",
        default="UPSERT",
        flag="--op",
        values={name: name for name in ("UPSERT", "INSERT", "BULK_INSERT", "DELETE", *sorted(OVERWRITES))},
        refused_values=dict.fromkeys(
            (
                "DELETE_PARTITION",
                "BOOTSTRAP",
                "UPSERT_PREPPED",
                "INSERT_PREPPED",
                "BULK_INSERT_PREPPED",
                "DELETE_PREPPED",
            ),
            _OP,
        ),
    )
    version: int = option(
        "hoodie.write.table.version",
        Kind.CHOICE,
        "Version of a new table. An existing table keeps its version, unless this key is given and is "
        "higher (`hoodie.write.auto.upgrade`). Hudi 0.x supports only version 6, 1.0 writes 8, 1.1 and "
        "1.2 write 9.",
        default="6",
        values={str(number): str(number) for number in VERSIONS},
        aliases=("hoodie.table.version",),
        refused_values={
            "7": "no release of Hudi makes tables of version 7",
            "10": "this version of the table is not known",
        },
        convert=int,
    )
    auto_upgrade: bool = option(
        "hoodie.write.auto.upgrade",
        Kind.BOOL,
        "If `hoodie.write.table.version` is given and the table has a lower version, the start "
        "upgrades the table (as `tagstream table upgrade` does). False: the table keeps its version.",
        default=True,
    )
    record_key_fields: tuple[str, ...] = option(
        "hoodie.datasource.write.recordkey.field",
        Kind.LIST,
        "Fields that make up the record key; a field of a struct by its path, `meta.id` (of records in JSON or "
        "plain Avro, and typed rows).",
        default=(),
        default_note="required for a new table; else the table's own",
        aliases=("hoodie.table.recordkey.fields",),
    )
    partition_fields: tuple[str, ...] = option(
        "hoodie.datasource.write.partitionpath.field",
        Kind.LIST,
        "Fields of the partition path; empty: the table has no partitions. Values are used unchanged: "
        "for a timestamp column the value is a number, and each millisecond would be a partition. To "
        "partition by day, use the TIMESTAMP key generator. With the CUSTOM key generator each field "
        "has a kind, `city:SIMPLE,at:TIMESTAMP`.",
        default=(),
        aliases=("hoodie.table.partition.fields",),
    )
    hive_style: bool = option(
        "hoodie.datasource.write.hive_style_partitioning",
        Kind.BOOL,
        "Partition folders are named `field=value`.",
        default=False,
    )
    url_encode: bool = option(
        "hoodie.datasource.write.partitionpath.urlencode",
        Kind.BOOL,
        "Special characters of a partition value become `%XX`. Without it a `/` in a value makes "
        "folder levels. All partition paths of a table have the same depth: that of its newest commit, "
        "or in a new table that of most records of the first batch. Readers do not find a partition "
        "inside another one. A record with another depth is quarantined.",
        default=False,
    )
    drop_partition_columns: bool = option(
        "hoodie.datasource.write.drop.partition.columns",
        Kind.BOOL,
        "The partition columns are not written to the files, as BigQuery requires. Keys and paths are "
        "made from the whole record. Readers take the values from the path, as strings after the other "
        "columns, like Hudi. A record is quarantined if its path would not give back its value. Not "
        "allowed with times in the paths, or if a record key or ordering field is a partition column.",
        default=False,
    )
    key_generator: KeyKind = derived(
        ConfigKey(
            "hoodie.datasource.write.keygenerator.type",
            Kind.CHOICE,
            "Key generator, by type.",
            default_note="SIMPLE for one key and one partition field, NON_PARTITION for no partition field, else "
            "COMPLEX",
            values=type_spellings(),
            refused_values=dict.fromkeys(REFUSED_TYPES, _GENERATORS),
        ),
        ConfigKey(
            "hoodie.datasource.write.keygenerator.class",
            Kind.CHOICE,
            "Key generator, by Hudi's class name.",
            default_note="see `hoodie.datasource.write.keygenerator.type`",
            aliases=("hoodie.table.keygenerator.class",),
            values=class_spellings(),
            refused_values={
                f"{package}{name}".upper(): _GENERATORS for package in ("", KEYGEN_PACKAGE) for name in REFUSED_CLASSES
            },
        ),
    )
    new_key_encoding: bool | None = option(
        NEW_ENCODING,
        Kind.BOOL,
        "How the complex key generator writes a key of one field in a new table of version 6 or 8: "
        "`true` is only the value (`k1`), as Hudi 0.14.1 to 1.0.2 write it; `false` is `id:k1`, as "
        "earlier and later Hudi versions write it. Version 9 has only the value. In an existing table "
        "the rows decide, and a contradicting value is refused. Hudi 1.1 and newer refuse to write "
        "such a table of version 6 or 8, unless `hoodie.write.complex.keygen.validation.enable=false` "
        "is given, with this key set as in the table.",
        default_note="`true`; for an existing table the form in its rows",
    )
    check_stored_keys: bool = option(
        CHECK_STORED,
        Kind.BOOL,
        "A start computes record keys and partition paths for some stored rows of up to 16 partitions. "
        "It refuses the table if the rows have others: with another key generator, or other flags of "
        "it, every row would be duplicated or moved. `false` starts without this check.",
        default=True,
    )
    key_collisions: str = option(
        "tagstream.key.collisions",
        Kind.CHOICE,
        "Keys of several fields have the form `a:1,b:2`. So the values `1,b:2` and `3` give the same "
        "key as `1` and `2,b:3`, and the text `__null__` gives the same key as a null. Such rows "
        "overwrite each other, as in Hudi. `quarantine` quarantines records with a value that includes "
        "a comma, the name of a later key field and a colon, or that is such a placeholder.",
        default="allow",
        values={"ALLOW": "allow", "QUARANTINE": "quarantine"},
    )
    ordering_fields: tuple[str, ...] = option(
        "hoodie.table.ordering.fields",
        Kind.LIST,
        "The field whose greater value is the newer event; a field of a struct by its path, `meta.ts` "
        "(for records in JSON or plain Avro, and typed rows). With several fields the first one that "
        "differs decides; they need a table of version 8 or 9, and a record that lacks one of them is "
        "quarantined. Without an ordering field the position in the source decides. Files have no such "
        "position, so they need an ordering field. In a merge-on-read table a decimal has at most 15 "
        "digits before the point and 15 after it, because a delete in a log file has no more: a type "
        "with more digits after it is refused, a record with more digits before it is quarantined. "
        "Strings are compared by code points, while Java compares UTF-16 units. The two differ only "
        "between a character of U+E000 to U+FFFF and one above U+FFFF.",
        default=(),
        flag="--source-ordering-fields",
        flag_aliases=("--source-ordering-field",),
        aliases=("hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field"),
    )
    merge_mode: str = derived(
        ConfigKey(
            "hoodie.write.record.merge.mode",
            Kind.CHOICE,
            "It is derived from the ordering field; a contradicting value is refused.",
            default_note="EVENT_TIME_ORDERING with an ordering field, else COMMIT_TIME_ORDERING",
            aliases=("hoodie.record.merge.mode",),
            values={"EVENT_TIME_ORDERING": "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING": "COMMIT_TIME_ORDERING"},
            refused_values={"CUSTOM": "records are merged by event time or by commit time"},
        ),
    )
    logs_changes: bool = option(
        CDC_KEY,
        Kind.BOOL,
        "Change data capture: base files get change files with the row before and after each change, which Hudi's CDC "
        "query and `tagstream table changes` read. In an existing table it is turned on at the start, and its change "
        "stream begins with the next commit. It cannot be turned off by this key. New file groups of a merge-on-read "
        "table begin with a base file.",
        default=False,
    )
    logging_mode: LoggingMode = option(
        CDC_MODE_KEY,
        Kind.CHOICE,
        "What change files have: the row before and after, the row before, or only the record key. Readers take what is "
        "missing from the base files. An existing table keeps its mode.",
        default=LoggingMode.DATA_BEFORE_AFTER.value,
        values={
            **{mode.value: mode.value for mode in LoggingMode},
            **{name: mode.value for name, mode in OLD_MODES.items()},
        },
        convert=LoggingMode,
    )
    time_fields: tuple[str, ...] = ()
    times: TimePartition | None = None
    time_keys: Mapping[str, str] = derived(*_TIME_KEYS)

    @property
    def change_logging(self) -> LoggingMode | None:
        """What the change files of a new table have; None without change data capture."""
        return self.logging_mode if self.logs_changes else None
