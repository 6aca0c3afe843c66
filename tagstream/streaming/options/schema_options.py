"""How the table's schema follows the records, and the meaning of a record that lacks fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tagstream.streaming.options.record_options import RecordOptions
from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.option_fields import derived, option, read
from tagstream.table.timeline.operation import WriteOperationType

_SCHEMA_FILE = "hoodie.streamer.schemaprovider.source.schema.file"
_EVOLUTION, _PARTIAL = "tagstream.schema.evolution", "hoodie.write.partial.update"
_NULL, _RECONCILE = "hoodie.write.set.null.for.missing.columns", "hoodie.datasource.write.reconcile.schema"
_DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
_INDEX, _OPERATION = "hoodie.index.type", "hoodie.datasource.write.operation"


@dataclass(frozen=True)
class SchemaOptions:
    """``by_records``: the table gets new columns and types from the records' own schemas. ``missing``: what happens with a
    column of the table that the schema no longer has. ``new_nullable``: a new column that is not nullable becomes nullable.
    ``partial_update``: a field that a record lacks keeps the row's value. ``correct_times``: the source's units of times
    replace wrong ones in the table's schema."""

    by_records: bool = derived(
        ConfigKey(
            "tagstream.schema.evolution",
            Kind.CHOICE,
            "What changes the table's schema while the job runs "
            "(docs/guide/records.md#when-the-schema-changes): the schemas in records, in formats that have "
            "them (`records`: Avro, Debezium's JSON with its schema), or only the schema from a file, the "
            "registry or the table (`given`).",
            default_note="given with a schema file, else records",
            values={"RECORDS": "records", "GIVEN": "given"},
        ),
    )
    missing: Literal["null", "drop", "fail"] = derived(
        ConfigKey(
            "hoodie.write.set.null.for.missing.columns",
            Kind.BOOL,
            "A column of the table that the schema no longer has is kept, and is null in new rows. With "
            "false such a schema ends the job and nothing of the batch is written. Hudi's default is false.",
            default=True,
        ),
        ConfigKey(
            "hoodie.datasource.write.reconcile.schema",
            Kind.BOOL,
            "The same as hoodie.write.set.null.for.missing.columns=true, over which it has precedence: "
            "Hudi's older name.",
            default=False,
        ),
        ConfigKey(
            "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
            Kind.BOOL,
            "A column that the given schema no longer has is removed from the table's schema. The given "
            "schema is that of a file, or the newest one in the registry when the job starts or the file "
            "changes. Files keep the column's values until they are rewritten: a column of this name that "
            "is added later shows them again. It has no effect if one of the two keys above is true.",
            default=False,
        ),
    )
    new_nullable: bool = option(
        "hoodie.datasource.write.new.columns.nullable",
        Kind.BOOL,
        "A new column of the schema file that is not nullable becomes nullable; without this key it is "
        "refused. New columns from records or the registry always become nullable.",
        default=False,
    )
    partial_update: bool = option(
        "hoodie.write.partial.update",
        Kind.BOOL,
        "With plain JSON: a field that a record lacks keeps the value of the row; an explicit null is "
        "null. Each record needs key and ordering field. Only the state index supports this "
        "(docs/guide/records.md).",
        default=False,
    )
    correct_times: bool = option(
        "tagstream.schema.correct.times",
        Kind.BOOL,
        "The given schema's timestamp-millis replaces the table's timestamp-micros, and its local "
        "timestamps replace the table's long. Hudi 0.x and 1.0 wrote such columns under these wrong "
        "types, while the numbers are the source's. A start first checks the values of the table "
        "(docs/reference/compatibility.md#milliseconds-under-microseconds).",
        default=False,
    )


def schema_options(r: Resolved, records: RecordOptions, *, state_index: bool) -> SchemaOptions:
    """The options; contradictions are noted in ``r``."""
    setting = r.opt_text(_EVOLUTION)
    by_records = setting == "records" if setting is not None else r.opt_text(_SCHEMA_FILE) is None
    partial = r.flag(_PARTIAL)
    if partial and not records.format.partial_rows:
        text = (
            f"{r.said(_PARTIAL)}: records of {records.format.name} mark values that were not "
            f"sent; this key is for plain JSON, remove it"
        )
        r.problems.append(Problem(text, r.entries.get(_PARTIAL)))
    if partial and not state_index:
        text = (
            f"{r.said(_PARTIAL)}: only the state index reads the row's values; remove this key, "
            f"or remove {_INDEX} and begin a new checkpoint"
        )
        r.problems.append(Problem(text, r.entries.get(_PARTIAL)))
    operation = r.text(_OPERATION)
    if partial and operation != WriteOperationType.UPSERT:
        text = f"{r.said(_PARTIAL)}: {operation} keeps no values of a row; remove this key, or {_OPERATION}"
        r.problems.append(Problem(text, r.entries.get(_PARTIAL)))
    return read(SchemaOptions, r, by_records=by_records, missing=_missing(r))


def _missing(r: Resolved) -> Literal["null", "drop", "fail"]:
    """Hudi's precedence of the three keys. Hudi's default would fail, but tables of change streams do lose columns."""
    given = r.flag(_NULL) if _NULL in r.values else None
    if given or r.flag(_RECONCILE):
        return "null"
    if r.flag(_DROP):
        return "drop"
    return "null" if given is None else "fail"
