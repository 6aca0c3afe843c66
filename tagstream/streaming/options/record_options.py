"""How records are read: their format, the place of their schemas, and the meaning of their events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Literal, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.streaming.record_formats import TYPED_ROWS, Order, SourceFormat, chosen_formats, source_format
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import derived, option, read

_FORMAT, _BYTES, _ORDER = "tagstream.source.format", "tagstream.decode.bytes", "tagstream.debezium.order"
_TRUNCATE = "tagstream.debezium.truncate"
TABLES = "tagstream.source.tables"
OPERATION = "Op"  # the column of AWS DMS with the operation of a record
_PAYLOAD, _TRANSFORMER = "hoodie.datasource.write.payload.class", "hoodie.streamer.transformer.class"
_DMS_PAYLOAD, _DMS_TRANSFORMER = "AWSDmsAvroPayload", "AWSDmsTransformer"
_POST_PROCESSOR = "hoodie.streamer.source.json.kafka.post.processor.maxwell"
_MAXWELL_DATABASE, _MAXWELL_TABLE = f"{_POST_PROCESSOR}.database.regex", f"{_POST_PROCESSOR}.table.regex"
_MODE, _CLASS = "hoodie.write.record.merge.mode", "--source-class"
_PROVIDER_URL, _URL = "hoodie.streamer.schemaprovider.registry.url", "schema.registry.url"
_SCHEMA_FILE = "hoodie.streamer.schemaprovider.source.schema.file"
_USER, _TOPIC = "schema.registry.basic.auth.user.info", "hoodie.streamer.source.kafka.topic"
# The format and order of the records of a source class of HoodieStreamer.
_OF_CLASS = {
    "ParquetDFSSource": ("parquet", None),
    "AvroDFSSource": ("avro-files", None),
    "CsvDFSSource": ("csv", None),
    "HoodieIncrSource": ("hudi", None),
    "AvroKafkaSource": ("avro", None),
    "ProtoKafkaSource": ("protobuf", None),
    "PostgresDebeziumSource": ("debezium-avro", "lsn"),
    "MysqlDebeziumSource": ("debezium-avro", "binlog"),
}
_Place = tuple[str | None, str | None, str | None]
_NOWHERE: _Place = (None, None, None)


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """``debezium_order``: what orders the events of a table without an ordering field. ``registry_url``: without name
    and password, which ``registry_user_info`` has; ``registry_subject``: of the schema of values. ``delete_field``: the
    column of typed rows that marks deletes. ``tables``: patterns of the tables whose events are read. ``dms_deletes``: a
    record with ``D`` in :data:`OPERATION` is a delete; ``dms_operation``: records without this column get it.
    """

    format: SourceFormat = derived(
        ConfigKey(
            "tagstream.source.format",
            Kind.CHOICE,
            "Format of the records (docs/guide/records.md): rows as JSON (`json`); Debezium's change "
            "events as JSON, with or without their schema (`debezium-json`), or flattened by its "
            "transformation ExtractNewRecordState (`debezium-flat-json`); Avro in Confluent's wire format, "
            "of change events (`debezium-avro`), or of rows or flattened events (`avro`); messages of "
            "Maxwell (`maxwell-json`) or Canal (`canal-json`, flat ones).",
            default="json",
            values={name.upper(): name for name in chosen_formats()},
        ),
    )
    debezium_order: Order = derived(
        ConfigKey(
            "tagstream.debezium.order",
            Kind.CHOICE,
            "What orders a row's events if the table has no ordering field: PostgreSQL's `source.lsn` "
            "(`lsn`), MySQL's binlog file, position and row (`binlog`), or their arrival (`arrival`, as "
            "with hoodie.write.record.merge.mode=COMMIT_TIME_ORDERING; after a failover positions may be "
            "lower). Only the state index stores such an order; with other indexes events are applied in "
            "order of arrival. The first choice is fixed in the checkpoint.",
            default_note="lsn; binlog with MysqlDebeziumSource",
            values={"LSN": "lsn", "BINLOG": "binlog", "ARRIVAL": "arrival"},
        ),
    )
    truncate: Literal["fail", "delete", "ignore"] = option(
        "tagstream.debezium.truncate",
        Kind.CHOICE,
        "What a TRUNCATE of the source table does. Connectors send it only if configured to. The event "
        "is bad and ends the job (`fail`), all rows with an earlier order are deleted (`delete`; needs "
        "the order of the source's log, no ordering field, and the state index), or the table keeps "
        "its rows (`ignore`).",
        default="fail",
        values={"FAIL": "fail", "DELETE": "delete", "IGNORE": "ignore"},
    )
    placeholder: str = option(
        "tagstream.debezium.unavailable.value",
        Kind.STRING,
        "The text that replaces a value that was not sent because it did not change: the connector's "
        "`unavailable.value.placeholder`. The row keeps its value.",
        default="__debezium_unavailable_value",
    )
    bytes_as: Literal["base64", "hex", "raw"]
    dms_deletes: bool = False
    dms_operation: bool = False
    null_if_lost: bool = option(
        "tagstream.debezium.unavailable.lost",
        Kind.CHOICE,
        "What happens with a value that was not sent when the row with it no longer exists: the key of "
        "the row was changed, and an earlier batch has read its delete under the old key. The job ends "
        "(`fail`), or the value is null (`null`).",
        default="fail",
        values={"FAIL": "fail", "NULL": "null"},
        convert=partial(eq, "null"),
    )
    registry_url: str | None = derived(
        ConfigKey(
            "schema.registry.url",
            Kind.STRING,
            "The schema registry (Confluent's interface) with the schemas of Avro records by their ids. "
            "The URL may include name and password. HoodieStreamer's "
            "`hoodie.streamer.schemaprovider.registry.url` can be used as well.",
            default_note="required with formats in Avro",
            secret=True,
        ),
        ConfigKey(
            "hoodie.streamer.schemaprovider.registry.url",
            Kind.STRING,
            "The whole URL of the table's schema in the registry, "
            "`.../subjects/TOPIC-value/versions/latest`. It is read when no schema file is named.",
            default_note="that of the topic's values",
            secret=True,
        ),
    )
    registry_subject: str
    registry_ca_file: str | None = option(
        "tagstream.schema.registry.ca.file",
        Kind.PATH,
        "PEM file with the certificate authorities for the registry's certificate.",
        default_note="those of the machine",
    )
    registry_user_info: str | None = derived(
        ConfigKey(
            "schema.registry.basic.auth.user.info",
            Kind.STRING,
            "`NAME:PASSWORD` for the registry. Tasks read it from the environment variable "
            "TAGSTREAM_SCHEMA_REGISTRY_USER_INFO. On one machine the driver sets the variable for Spark; "
            "for the executors of a cluster you must set it.",
            aliases=("basic.auth.user.info",),
            default_note="none",
            secret=True,
        ),
        shown=False,
    )
    delete_field: str = option(
        "tagstream.delete.field",
        Kind.STRING,
        "Boolean column of typed rows (`tagstream.upsert`); rows with true are deletes. The column is "
        "not written to the table.",
        default="_hoodie_is_deleted",
        section="Source",
    )
    tables: tuple[str, ...] = derived(
        ConfigKey(
            "tagstream.source.tables",
            Kind.STRING,
            "The tables whose events are read, if a topic has events of several tables: regular "
            "expressions of `database.schema.table` (as in the events, without parts that they lack), "
            "separated by commas. `schema.table` is also matched. Events of other tables count as skipped. "
            "Without this key the stream belongs to the first table in it, and an event of another table "
            "is bad.",
            default_note="the first table in the stream",
        ),
        *(
            ConfigKey(
                f"{_POST_PROCESSOR}.{what}.regex",
                Kind.STRING,
                f"Regular expression of the {what} whose events are read: HoodieStreamer's form of "
                f"`tagstream.source.tables`, which has precedence.",
            )
            for what in ("database", "table")
        ),
    )


def record_options(r: Resolved, ordering: tuple[str, ...], *, typed: bool = False) -> RecordOptions:
    """The options; contradictions are noted in ``r``. ``typed``: records are typed rows of a DataFrame."""
    kind, order = (TYPED_ROWS, TYPED_ROWS.order) if typed else _format(r)
    if not ordering and r.opt_text(_MODE) == "COMMIT_TIME_ORDERING":
        order = "arrival"
    url, subject, user_info = r.attempt(lambda: _registry(r), _NOWHERE, _URL, _PROVIDER_URL)
    if not kind.avro and r.opt_text(_SCHEMA_FILE) is not None and url is not None:
        where = " and ".join(f"{key} ({r.entries[key].origin})" for key in (_PROVIDER_URL, _URL) if key in r.entries)
        r.warnings.append(f"{where}: without effect, the schema is that of {_SCHEMA_FILE}; no schema registry is used")
    if kind.avro:
        if url is None and not {_URL, _PROVIDER_URL} & r.values.keys():
            r.problems.append(
                Problem(f"{_URL} is missing; records of {kind.name} have the ids of their schemas in a registry")
            )
        if r.text(_CLASS) == "JsonDFSSource":
            r.problems.append(
                Problem(f"{kind.name}: files are read line by line, and Avro has no lines; read it from Kafka")
            )
    nothing: tuple[str, ...] = ()
    return read(
        RecordOptions,
        r,
        format=kind,
        debezium_order=order,
        truncate=_truncate(r, ordering, order, kind),
        bytes_as=_bytes_as(r, kind),
        registry_url=url,
        registry_subject=subject or f"{r.opt_text(_TOPIC) or ''}-value",
        registry_user_info=r.opt_text(_USER) or user_info,
        tables=r.attempt(lambda: _tables(r, kind), nothing, TABLES),
        dms_deletes=kind.transformed and names_dms_payload(r),
        dms_operation=kind.transformed and _adds_operation(r),
    )


def names_dms_payload(r: Resolved) -> bool:
    """Whether the payload class is that for AWS DMS, whose records with ``D`` in :data:`OPERATION` are deletes."""
    return any(
        isinstance(key, ConfigKey) and key.name == _PAYLOAD and entry.value.rpartition(".")[2] == _DMS_PAYLOAD
        for key, entry in r.unsupported
    )


def _adds_operation(r: Resolved) -> bool:
    """Whether a transformer adds :data:`OPERATION` to records without it."""
    return any(re.split("[.:]", name.strip())[-1] == _DMS_TRANSFORMER for name in r.texts(_TRANSFORMER))


def _format(r: Resolved) -> tuple[SourceFormat, Order]:
    by_class, _ = _OF_CLASS.get(r.text(_CLASS), (None, None))
    if by_class is not None and _FORMAT in r.values and r.text(_FORMAT) != by_class:
        text = f"{r.said(_FORMAT)} contradicts {r.said(_CLASS)}, whose records are {by_class}; remove one"
        r.problems.append(Problem(text, r.entries[_FORMAT]))
    return format_and_order(r)


def format_and_order(r: Resolved) -> tuple[SourceFormat, Order]:
    """The format of the records, and the order of the events of a change stream."""
    by_class, order_by_class = _OF_CLASS.get(r.text(_CLASS), (None, None))
    kind = source_format(by_class or r.text(_FORMAT))
    return kind, cast("Order", r.opt_text(_ORDER) or order_by_class or kind.order)


def _tables(r: Resolved, kind: SourceFormat) -> tuple[str, ...]:
    """Patterns of ``database.schema.table``; HoodieStreamer's two keys for Maxwell's messages have the same meaning."""
    setting = r.opt_text(TABLES)
    database, table = r.opt_text(_MAXWELL_DATABASE), r.opt_text(_MAXWELL_TABLE)
    patterns = tuple(part.strip() for part in (setting or "").split(",") if part.strip())
    if not patterns and (database or table):
        patterns = (rf"(?:{database or '.*'})\.(?:{table or '.*'})",)
    if patterns and not kind.names_tables:
        key = TABLES if setting else _MAXWELL_TABLE if table else _MAXWELL_DATABASE
        text = (
            f"{r.said(key)}: records of format {kind.name} do not have a table's name; set "
            f"tagstream.source.format, or remove this key"
        )
        r.problems.append(Problem(text, r.entries.get(key)))
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as e:
            raise ConfigError(f"{TABLES}: {pattern!r} is not a regular expression ({e})") from None
    return patterns


def _truncate(
    r: Resolved, ordering: tuple[str, ...], order: str, kind: SourceFormat
) -> Literal["fail", "delete", "ignore"]:
    """What a TRUNCATE does; a delete of the earlier rows needs its position in the order of all rows' events."""
    setting = r.text(_TRUNCATE)
    if setting == "delete":
        why = None
        if ordering:
            fields = ",".join(ordering)
            why = f"a TRUNCATE has no value of the ordering field {fields}, and so no position among its rows' events"
        elif kind.names_tables and not kind.positions:
            why = f"{kind.name} has no order of a TRUNCATE and the events of rows"
        elif order == "arrival":
            why = (
                "a TRUNCATE is in another Kafka partition than rows, so the order of "
                "arrival does not show which was first"
            )
        elif r.text("hoodie.index.type") != "STATE" or r.opt_text("hoodie.index.class") is not None:
            why = "only the state index stores an order of events that is not in a column"
        if why is not None:
            cure = "order by source.lsn or the binlog, without an ordering field, with the state index"
            r.problems.append(Problem(f"{r.said(_TRUNCATE)}: {why}; {cure}", r.entries.get(_TRUNCATE)))
    return cast("Literal['fail', 'delete', 'ignore']", setting)


def _bytes_as(r: Resolved, kind: SourceFormat) -> Literal["base64", "hex", "raw"]:
    given, debezium = r.opt_text(_BYTES), kind.encodes_bytes
    if given in ("base64", "hex") and not debezium:
        text = f"{r.said(_BYTES)}: only formats of Debezium have bytes in this form; this format is {kind.name}"
        r.problems.append(Problem(text, r.entries[_BYTES]))
    elif given in ("utf-8", "iso-8859-1") and debezium:
        text = f"{r.said(_BYTES)}: in formats of Debezium bytes are base64 or hex"
        r.problems.append(Problem(text, r.entries[_BYTES]))
    return "hex" if given == "hex" else "base64"


def _registry(r: Resolved) -> _Place:
    """(URL of the registry, subject, ``name:password``); the serializer's own key has precedence over the schema
    provider's."""
    provider, own = r.opt_text(_PROVIDER_URL), r.opt_text(_URL)
    of_provider = _NOWHERE if provider is None else split_url(provider, _PROVIDER_URL)
    of_own = _NOWHERE if own is None else split_url(own, _URL)
    return of_own[0] or of_provider[0], of_provider[1], of_own[2] or of_provider[2]


def split_url(url: str, key: str) -> _Place:
    """(the registry's own URL, the subject of a whole URL, ``name:password``). ConfigError when it is not a URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise ConfigError(f"{key} is not a URL: {e}; set it to http(s)://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{key} is not an http or https URL; set it to http(s)://HOST:PORT")
    user_info = None
    if parts.username is not None:
        user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    host = parts.hostname if port is None else f"{parts.hostname}:{port}"
    base, found, rest = parts.path.partition("/subjects/")
    subject = unquote(rest.split("/")[0]) if found else None
    return urlunsplit((parts.scheme, host, base.rstrip("/"), "", "")), subject, user_info
