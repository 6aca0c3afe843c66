"""Keys of the decoder: the format of records, what events mean, and what becomes of values that a column does not hold."""

from __future__ import annotations

from tagstream.streaming.record_formats import chosen_formats
from tagstream.table.config import ConfigKey, Kind

_FORMATS, _SCHEMA, _DECODE = "Formats", "Schema changes", "Records"


FORMAT_KEYS = (
    ConfigKey(
        "schema.registry.url",
        Kind.STRING,
        "The schema registry (Confluent's interface) that knows the schemas of Avro records by their ids; name and password "
        "can be in it. HoodieStreamer's `hoodie.streamer.schemaprovider.registry.url` serves as well.",
        default_note="required with formats in Avro",
        secret=True,
        section=_FORMATS,
    ),
    ConfigKey(
        "hoodie.streamer.schemaprovider.registry.url",
        Kind.STRING,
        "The whole URL of the table's schema in the registry, `.../subjects/TOPIC-value/versions/latest`; it is asked where "
        "no schema file is named.",
        default_note="that of the topic's values",
        secret=True,
        section=_FORMATS,
    ),
    ConfigKey(
        "schema.registry.basic.auth.user.info",
        Kind.STRING,
        "`NAME:PASSWORD` for the registry. Tasks find it in the environment variable "
        "TAGSTREAM_SCHEMA_REGISTRY_USER_INFO, which the driver sets for Spark on one machine; executors of a cluster must "
        "be given it.",
        aliases=("basic.auth.user.info",),
        default_note="none",
        secret=True,
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.schema.registry.ca.file",
        Kind.PATH,
        "PEM file of the authorities that the registry's certificate is checked with.",
        default_note="those of the machine",
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.source.format",
        Kind.CHOICE,
        "What records are written in (docs/guide/records.md): rows as JSON (`json`); Debezium's change events as JSON, "
        "with their schema or without (`debezium-json`), or flattened by its transformation ExtractNewRecordState "
        "(`debezium-flat-json`); Avro in Confluent's wire form, of change events (`debezium-avro`), of rows or flattened "
        "events (`avro`); messages of Maxwell (`maxwell-json`) or Canal (`canal-json`, flat ones).",
        default="json",
        values={name.upper(): name for name in chosen_formats()},
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.source.tables",
        Kind.STRING,
        "The tables whose events are read, where a topic has those of several: regular expressions of "
        "`database.schema.table` (as the events name it; without what they lack), separated by commas; `schema.table` is "
        "compared, too. Events of other tables count as skipped. Without it the stream is of the first table that it sees, "
        "and an event of another one is bad.",
        default_note="the first table that is seen",
        section=_FORMATS,
    ),
    *(
        ConfigKey(
            f"hoodie.streamer.source.json.kafka.post.processor.maxwell.{what}.regex",
            Kind.STRING,
            f"The {what} whose events are read, as a regular expression: HoodieStreamer's way to say "
            "`tagstream.source.tables`, which wins.",
            section=_FORMATS,
        )
        for what in ("database", "table")
    ),
    ConfigKey(
        "tagstream.debezium.order",
        Kind.CHOICE,
        "What orders a row's events where the table has no ordering field: `source.lsn` of PostgreSQL (`lsn`), MySQL's "
        "binlog file, position and row (`binlog`), or their arrival (`arrival`, as with "
        "hoodie.write.record.merge.mode=COMMIT_TIME_ORDERING; after a failover positions may begin lower). The state index "
        "alone keeps such an order; with other indexes events count as they arrive. A checkpoint keeps to its first choice.",
        default_note="lsn; binlog with MysqlDebeziumSource",
        values={"LSN": "lsn", "BINLOG": "binlog", "ARRIVAL": "arrival"},
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.debezium.truncate",
        Kind.CHOICE,
        "What a TRUNCATE of the source's table does, which connectors send only when told to: the event is bad and ends the "
        "job (`fail`), all rows from before it in the order are deleted (`delete`; needs the order of the source's log, no "
        "ordering field, and the state index), or the table keeps its rows (`ignore`).",
        default="fail",
        values={"FAIL": "fail", "DELETE": "delete", "IGNORE": "ignore"},
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.debezium.unavailable.value",
        Kind.STRING,
        "The text that stands for a value that was not sent since it did not change: the connector's "
        "`unavailable.value.placeholder`. The row keeps the value that it has.",
        default="__debezium_unavailable_value",
        section=_FORMATS,
    ),
    ConfigKey(
        "tagstream.debezium.unavailable.lost",
        Kind.CHOICE,
        "What becomes of a value that was not sent when the row that had it is gone: a row whose key was changed, and whose "
        "delete under the old key was read in an earlier batch. The job ends (`fail`), or the value is null (`null`).",
        default="fail",
        values={"FAIL": "fail", "NULL": "null"},
        section=_FORMATS,
    ),
)

SCHEMA_KEYS = (
    ConfigKey(
        "tagstream.schema.evolution",
        Kind.CHOICE,
        "What changes the table's schema while the job runs (docs/guide/records.md#when-the-schema-changes): the schemas "
        "that records bring, in formats that have them (`records`: Avro, Debezium's JSON with its schema), or only the "
        "schema that is given by a file, the registry or the table (`given`).",
        default_note="given with a schema file, else records",
        values={"RECORDS": "records", "GIVEN": "given"},
        section=_SCHEMA,
    ),
    ConfigKey(
        "hoodie.write.set.null.for.missing.columns",
        Kind.BOOL,
        "A column of the table that the schema does not have any more stays, and is null in new rows. With false such a "
        "schema ends the job and nothing of the batch is written. Hudi's default is false.",
        default=True,
        section=_SCHEMA,
    ),
    ConfigKey(
        "tagstream.schema.correct.times",
        Kind.BOOL,
        "The given schema's timestamp-millis takes the place of the table's timestamp-micros, its local timestamps that of "
        "the table's long: Hudi 0.x and 1.0 wrote such columns under these wrong types, and the numbers are the source's. A "
        "start looks at the values of the table first (docs/reference/compatibility.md#milliseconds-under-microseconds).",
        default=False,
        section=_SCHEMA,
    ),
    ConfigKey(
        "hoodie.datasource.write.reconcile.schema",
        Kind.BOOL,
        "The same as hoodie.write.set.null.for.missing.columns=true, and stronger than it: Hudi's older name.",
        default=False,
        section=_SCHEMA,
    ),
    ConfigKey(
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        Kind.BOOL,
        "A column that the given schema (of a file, or the newest of the registry, when the job starts or the file changes) "
        "does not have any more leaves the table's schema. Files keep its values until they are rewritten: a column of that "
        "name that is added later brings them back. Without effect where one of the two keys above is set to true.",
        default=False,
        section=_SCHEMA,
    ),
    ConfigKey(
        "hoodie.datasource.write.new.columns.nullable",
        Kind.BOOL,
        "A new column of the schema file that is not nullable becomes so; else it is refused. Columns that records or the "
        "registry bring always become nullable.",
        default=False,
        section=_SCHEMA,
    ),
    ConfigKey(
        "hoodie.write.partial.update",
        Kind.BOOL,
        "With plain JSON: a field that a record lacks keeps the value that the row has; an explicit null is null. Key and "
        "ordering field are needed in each record. Only the state index does this (docs/guide/records.md).",
        default=False,
        section=_SCHEMA,
    ),
)

DECODE_KEYS = (
    ConfigKey(
        "tagstream.decode.numbers",
        Kind.CHOICE,
        "Digits that a float, a double or a decimal does not hold make a record bad (`strict`), or are rounded away "
        "(`round`; decimals: halves away from zero). A number that is too large is bad either way, and so is a fraction in "
        "a column of whole numbers.",
        default="strict",
        values={"STRICT": "strict", "ROUND": "round"},
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.times",
        Kind.CHOICE,
        "Digits of a second that the column does not hold, and the time of day of a date, make a record bad (`strict`), or "
        "are cut off (`truncate`).",
        default="strict",
        values={"STRICT": "strict", "TRUNCATE": "truncate"},
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.nan",
        Kind.CHOICE,
        "How NaN, Infinity and -Infinity come in float and double columns: in quotes, as Jackson and Spark write them "
        "(`quoted`), or without as well (`bare`), which is no JSON.",
        default="quoted",
        values={"QUOTED": "quoted", "BARE": "bare"},
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.bytes",
        Kind.CHOICE,
        "What a text stands for in a column of bytes or fixed: the bytes of its UTF-8 (`utf-8`), or a byte a character, "
        "U+0000 to U+00FF, as Avro's own JSON has it (`iso-8859-1`); in formats of Debezium `base64` or `hex`, as the "
        "connector's `binary.handling.mode` says. Change it for a new table only: rows that are there stay as they are.",
        default_note="utf-8; base64 in formats of Debezium",
        values={
            "UTF-8": "utf-8",
            "UTF8": "utf-8",
            "ISO-8859-1": "iso-8859-1",
            "LATIN1": "iso-8859-1",
            "BASE64": "base64",
            "HEX": "hex",
        },
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.texts",
        Kind.CHOICE,
        "A text that is no symbol of its enum, or no uuid where the schema wants one, makes a record bad (`strict`), or is "
        "taken as it is (`any`).",
        default="strict",
        values={"STRICT": "strict", "ANY": "any"},
        section=_DECODE,
    ),
)
