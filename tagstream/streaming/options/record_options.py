"""How records are read: their format, where their schemas are, what their events mean, and where bad ones go.

The schema options say how the table's schema follows the records, and what a record that lacks fields means. Dead
letters are bad records that are written, in addition to the quarantine, to a Hudi table or a Kafka topic of their
own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.streaming.record_formats import TYPED_ROWS, Order, SourceFormat, source_format
from tagstream.table.errors import ConfigError

_FORMAT, _BYTES, _ORDER = "tagstream.source.format", "tagstream.decode.bytes", "tagstream.debezium.order"
_TRUNCATE = "tagstream.debezium.truncate"
TABLES = "tagstream.source.tables"
_POST_PROCESSOR = "hoodie.streamer.source.json.kafka.post.processor.maxwell"
_MAXWELL_DATABASE, _MAXWELL_TABLE = f"{_POST_PROCESSOR}.database.regex", f"{_POST_PROCESSOR}.table.regex"
_MODE, _CLASS = "hoodie.write.record.merge.mode", "--source-class"
_PROVIDER_URL, _URL = "hoodie.streamer.schemaprovider.registry.url", "schema.registry.url"
_SCHEMA_FILE = "hoodie.streamer.schemaprovider.source.schema.file"
_USER, _TOPIC = "schema.registry.basic.auth.user.info", "hoodie.streamer.source.kafka.topic"
# What a source class of HoodieStreamer says of the records, and of their order.
_OF_CLASS = {
    "AvroKafkaSource": ("avro", None),
    "PostgresDebeziumSource": ("debezium-avro", "lsn"),
    "MysqlDebeziumSource": ("debezium-avro", "binlog"),
}
_Place = tuple[str | None, str | None, str | None]
_NOWHERE: _Place = (None, None, None)


@dataclass(frozen=True)
class RecordOptions:
    """``debezium_order``: what orders the events of a table without an ordering field. ``registry_url``: without name and
    password, which ``registry_user_info`` has; ``registry_subject``: of the schema of values. ``delete_field``: the column
    of typed rows that marks deletes. ``tables``: patterns of the tables whose events are read.
    """

    format: SourceFormat
    debezium_order: Order
    truncate: Literal["fail", "delete", "ignore"]
    placeholder: str
    bytes_as: Literal["base64", "hex", "raw"]
    null_if_lost: bool
    registry_url: str | None
    registry_subject: str
    registry_ca_file: str | None
    registry_user_info: str | None = field(repr=False)
    delete_field: str
    tables: tuple[str, ...]


def record_options(r: Resolved, ordering: tuple[str, ...], *, typed: bool = False) -> RecordOptions:
    """The options; what contradicts is noted in ``r``. ``typed``: records are rows with their types, of a DataFrame."""
    kind, order = (TYPED_ROWS, TYPED_ROWS.order) if typed else _format(r)
    if not ordering and r.opt_text(_MODE) == "COMMIT_TIME_ORDERING":
        order = "arrival"
    url, subject, user_info = r.attempt(lambda: _registry(r), _NOWHERE, _URL, _PROVIDER_URL)
    if not kind.avro and r.opt_text(_SCHEMA_FILE) is not None and url is not None:
        where = " and ".join(f"{key} ({r.entries[key].origin})" for key in (_PROVIDER_URL, _URL) if key in r.entries)
        r.warnings.append(f"{where}: without effect, the schema is that of {_SCHEMA_FILE}; no schema registry is asked")
    if kind.avro:
        if url is None and not {_URL, _PROVIDER_URL} & r.values.keys():
            r.problems.append(
                Problem(f"{_URL} is missing; records of {kind.name} name their schemas by a registry's ids")
            )
        if r.text(_CLASS) == "JsonDFSSource":
            r.problems.append(Problem(f"{kind.name}: files are read as lines, and Avro has none; read it from Kafka"))
    return RecordOptions(
        format=kind,
        debezium_order=order,
        truncate=_truncate(r, ordering, order, kind),
        placeholder=r.text("tagstream.debezium.unavailable.value"),
        bytes_as=_bytes_as(r, kind),
        null_if_lost=r.text("tagstream.debezium.unavailable.lost") == "null",
        registry_url=url,
        registry_subject=subject or f"{r.opt_text(_TOPIC) or ''}-value",
        registry_ca_file=r.opt_text("tagstream.schema.registry.ca.file"),
        registry_user_info=r.opt_text(_USER) or user_info,
        delete_field=r.text("tagstream.delete.field"),
        tables=r.attempt(lambda: _tables(r, kind), (), TABLES),
    )


def _format(r: Resolved) -> tuple[SourceFormat, Order]:
    by_class, _ = _OF_CLASS.get(r.text(_CLASS), (None, None))
    if by_class is not None and _FORMAT in r.values and r.text(_FORMAT) != by_class:
        text = f"{r.said(_FORMAT)} contradicts {r.said(_CLASS)}, whose records are {by_class}; remove one"
        r.problems.append(Problem(text, r.entries[_FORMAT]))
    return format_and_order(r)


def format_and_order(r: Resolved) -> tuple[SourceFormat, Order]:
    """The format of the records, and what orders the events of a change stream."""
    by_class, order_by_class = _OF_CLASS.get(r.text(_CLASS), (None, None))
    kind = source_format(by_class or r.text(_FORMAT))
    return kind, cast("Order", r.opt_text(_ORDER) or order_by_class or kind.order)


def _tables(r: Resolved, kind: SourceFormat) -> tuple[str, ...]:
    """Patterns of ``database.schema.table``; HoodieStreamer's two keys of Maxwell's messages mean the same."""
    told = r.opt_text(TABLES)
    database, table = r.opt_text(_MAXWELL_DATABASE), r.opt_text(_MAXWELL_TABLE)
    patterns = tuple(part.strip() for part in (told or "").split(",") if part.strip())
    if not patterns and (database or table):
        patterns = (rf"(?:{database or '.*'})\.(?:{table or '.*'})",)
    if patterns and not kind.names_tables:
        key = TABLES if told else _MAXWELL_TABLE if table else _MAXWELL_DATABASE
        text = f"{r.said(key)}: records of format {kind.name} name no table; give tagstream.source.format, or remove it"
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
    """What a TRUNCATE does; to delete what was there needs its place in the order of all rows' events."""
    told = r.text(_TRUNCATE)
    if told == "delete":
        why = None
        if ordering:
            fields = ",".join(ordering)
            why = f"a TRUNCATE has no value of the ordering field {fields}, and so no place among its rows' events"
        elif kind.names_tables and not kind.positions:
            why = f"{kind.name} has nothing that orders a TRUNCATE among the events of rows"
        elif order == "arrival":
            why = "a TRUNCATE comes in another partition than rows do, and arrival says nothing of which was first"
        elif r.text("hoodie.index.type") != "STATE" or r.opt_text("hoodie.index.class") is not None:
            why = "only the state index keeps the order of events that is in no column"
        if why is not None:
            cure = "order by source.lsn or the binlog, without an ordering field, with the state index"
            r.problems.append(Problem(f"{r.said(_TRUNCATE)}: {why}; {cure}", r.entries.get(_TRUNCATE)))
    return cast("Literal['fail', 'delete', 'ignore']", told)


def _bytes_as(r: Resolved, kind: SourceFormat) -> Literal["base64", "hex", "raw"]:
    given, debezium = r.opt_text(_BYTES), kind.encodes_bytes
    if given in ("base64", "hex") and not debezium:
        text = f"{r.said(_BYTES)}: only formats of Debezium have bytes so; this one is {kind.name}"
        r.problems.append(Problem(text, r.entries[_BYTES]))
    elif given in ("utf-8", "iso-8859-1") and debezium:
        text = f"{r.said(_BYTES)}: in formats of Debezium bytes are base64 or hex"
        r.problems.append(Problem(text, r.entries[_BYTES]))
    return "hex" if given == "hex" else "base64"


def _registry(r: Resolved) -> _Place:
    """(URL of the registry, subject, ``name:password``); the serializer's own key goes before the schema provider's."""
    provider, own = r.opt_text(_PROVIDER_URL), r.opt_text(_URL)
    of_provider = _NOWHERE if provider is None else split_url(provider, _PROVIDER_URL)
    of_own = _NOWHERE if own is None else split_url(own, _URL)
    return of_own[0] or of_provider[0], of_provider[1], of_own[2] or of_provider[2]


def split_url(url: str, key: str) -> _Place:
    """(the registry's own URL, the subject that a whole URL names, ``name:password``). ConfigError when it is no URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise ConfigError(f"{key} is no URL: {e}; give http(s)://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{key} is no http or https URL; give http(s)://HOST:PORT")
    user_info = None
    if parts.username is not None:
        user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    host = parts.hostname if port is None else f"{parts.hostname}:{port}"
    base, found, rest = parts.path.partition("/subjects/")
    subject = unquote(rest.split("/")[0]) if found else None
    return urlunsplit((parts.scheme, host, base.rstrip("/"), "", "")), subject, user_info


_EVOLUTION, _PARTIAL = "tagstream.schema.evolution", "hoodie.write.partial.update"
_NULL, _RECONCILE = "hoodie.write.set.null.for.missing.columns", "hoodie.datasource.write.reconcile.schema"
_DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
_NEW = "hoodie.datasource.write.new.columns.nullable"
_CORRECT = "tagstream.schema.correct.times"
_INDEX, _OPERATION = "hoodie.index.type", "hoodie.datasource.write.operation"


@dataclass(frozen=True)
class SchemaOptions:
    """``by_records``: columns and types that records' own schemas bring are taken up. ``missing``: what becomes of a column
    of the table that does not come any more. ``new_nullable``: a new column that is not nullable becomes so.
    ``partial_update``: a field that a record lacks keeps what the row has. ``correct_times``: the source's units of times
    take the place of wrong ones in the table's schema.
    """

    by_records: bool
    missing: Literal["null", "drop", "fail"]
    new_nullable: bool
    partial_update: bool
    correct_times: bool = False


def schema_options(r: Resolved, records: RecordOptions, *, state_index: bool) -> SchemaOptions:
    """The options; what contradicts is noted in ``r``."""
    told = r.opt_text(_EVOLUTION)
    by_records = told == "records" if told is not None else r.opt_text(_SCHEMA_FILE) is None
    partial = r.flag(_PARTIAL)
    if partial and not records.format.partial_rows:
        text = (
            f"{r.said(_PARTIAL)}: records of {records.format.name} say themselves which values were not sent; it is for "
            "plain JSON, remove it"
        )
        r.problems.append(Problem(text, r.entries.get(_PARTIAL)))
    if partial and not state_index:
        text = (
            f"{r.said(_PARTIAL)}: only the state index fetches what a row has; remove it, or {_INDEX} and begin a new "
            "checkpoint"
        )
        r.problems.append(Problem(text, r.entries.get(_PARTIAL)))
    if partial and r.text(_OPERATION) != "UPSERT":
        text = f"{r.said(_PARTIAL)}: rows that are overwritten keep nothing; remove it, or {_OPERATION}"
        r.problems.append(Problem(text, r.entries.get(_PARTIAL)))
    return SchemaOptions(by_records, _missing(r), r.flag(_NEW), partial, r.flag(_CORRECT))


def _missing(r: Resolved) -> Literal["null", "drop", "fail"]:
    """Hudi's order of the three keys; its own default would fail, but a change stream's tables lose columns."""
    given = r.flag(_NULL) if _NULL in r.values else None
    if given or r.flag(_RECONCILE):
        return "null"
    if r.flag(_DROP):
        return "drop"
    return "null" if given is None else "fail"


ERROR_ENABLE, ERROR_PATH, ERROR_NAME = (
    "hoodie.errortable.enable",
    "hoodie.errortable.base.path",
    "hoodie.errortable.target.table.name",
)
ERROR_STRATEGY, ERROR_TOPIC = "hoodie.errortable.write.failure.strategy", "tagstream.errortable.topic"


@dataclass(frozen=True)
class DeadLetterOptions:
    """``base_path`` of the table, ``topic``: None for none. ``may_fail``: the job goes on when they are not taken."""

    base_path: str | None = None
    table_name: str | None = None
    topic: str | None = None
    may_fail: bool = False

    @property
    def enabled(self) -> bool:
        """Whether there are any."""
        return self.base_path is not None or self.topic is not None


def dead_letter_options(r: Resolved, source_class: str, base_path: str) -> DeadLetterOptions:
    """The options; what contradicts is noted in ``r``."""
    if r.flag("--replay-quarantine") and source_class != "kafka":
        text = (
            "--replay-quarantine sends bad records to the topic they came from; for files: tagstream quarantine replay"
        )
        r.problems.append(Problem(text, r.entries.get("--replay-quarantine")))
    path, topic = r.opt_text(ERROR_PATH), r.opt_text(ERROR_TOPIC)
    if not r.flag(ERROR_ENABLE):
        for name in (ERROR_PATH, ERROR_TOPIC):
            if name in r.entries:
                r.warnings.append(f"{r.said(name)}: without effect, {ERROR_ENABLE} is not true")
        return DeadLetterOptions()
    if path is None and topic is None:
        r.problems.append(
            Problem(f"{r.said(ERROR_ENABLE)}: give {ERROR_PATH}, or {ERROR_TOPIC}", r.entries[ERROR_ENABLE])
        )
    if topic is not None and source_class != "kafka":
        text = (
            f"{r.said(ERROR_TOPIC)}: the broker is that of the source, and this source is no topic; give {ERROR_PATH}"
        )
        r.problems.append(Problem(text, r.entries[ERROR_TOPIC]))
    if topic is not None and topic == r.opt_text("hoodie.streamer.source.kafka.topic"):
        text = f"{r.said(ERROR_TOPIC)}: it is the topic that the job reads; give one of its own"
        r.problems.append(Problem(text, r.entries[ERROR_TOPIC]))
    if path is not None and path.rstrip("/") == base_path.rstrip("/"):
        r.problems.append(
            Problem(f"{r.said(ERROR_PATH)}: it is the job's own table; give a folder of its own", r.entries[ERROR_PATH])
        )
    return DeadLetterOptions(path, r.opt_text(ERROR_NAME), topic, r.text(ERROR_STRATEGY) == "LOG_ERROR")
