"""How the table's schema follows the records, and what a record that lacks fields means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tagstream.streaming.options.record_options import RecordOptions
from tagstream.streaming.options.resolve import Problem, Resolved

_EVOLUTION, _PARTIAL = "tagstream.schema.evolution", "hoodie.write.partial.update"
_NULL, _RECONCILE = "hoodie.write.set.null.for.missing.columns", "hoodie.datasource.write.reconcile.schema"
_DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
_NEW = "hoodie.datasource.write.new.columns.nullable"
_CORRECT = "tagstream.schema.correct.times"
_FILE, _INDEX, _OPERATION = (
    "hoodie.streamer.schemaprovider.source.schema.file", "hoodie.index.type", "hoodie.datasource.write.operation",
)  # fmt: skip


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
    by_records = told == "records" if told is not None else r.opt_text(_FILE) is None
    partial = r.flag(_PARTIAL)
    if partial and records.format != "json":
        text = (
            f"{r.said(_PARTIAL)}: records of {records.format} say themselves which values were not sent; it is for plain "
            "JSON, remove it"
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
