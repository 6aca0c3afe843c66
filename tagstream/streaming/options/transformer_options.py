"""The transformations of records: HoodieStreamer's transformer classes, and a Python function of the user."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tagstream.streaming.options.resolve import Problem, Resolved, shown
from tagstream.streaming.record_formats import HUDI_ROWS, SourceFormat
from tagstream.table.config import Entry
from tagstream.table.errors import ConfigError

CLASS, FUNCTION = "hoodie.streamer.transformer.class", "tagstream.transformer"
SQL, SQL_FILE = "hoodie.streamer.transformer.sql", "hoodie.streamer.transformer.sql.file"
_PACKAGE = "org.apache.hudi.utilities.transform."
_KINDS: dict[str, Literal["sql", "flatten", "identity", "dms"]] = {
    "SqlQueryBasedTransformer": "sql",
    "SqlFileBasedTransformer": "sql",
    "FlatteningTransformer": "flatten",
    "IdentityTransformer": "identity",
    "AWSDmsTransformer": "dms",
}
_SOURCE_SCHEMA = "hoodie.streamer.schemaprovider.source.schema.file"


@dataclass(frozen=True)
class TransformerOption:
    """One step of the chain. ``text``: the statements of ``sql``, the module and function of ``python``; ``where``: its
    name. ``dms``: the records have the column already, by ``RecordOptions.dms_operation``."""

    kind: Literal["sql", "flatten", "identity", "dms", "python"]
    text: str
    where: str


def transformer_options(r: Resolved, record_format: SourceFormat) -> tuple[TransformerOption, ...]:
    """The chain in its order, the Python function last; errors are noted in ``r``. Keys with an id
    (``hoodie.streamer.transformer.sql.ID``) are removed from the unused keys."""
    named = r.texts(CLASS)
    ids = {name.partition(":")[0].strip() for name in named if ":" in name}
    of_id = _take_suffixed(r, ids)
    none: tuple[TransformerOption, ...] = ()
    chain = r.attempt(lambda: _chain(r, named, of_id), none, CLASS, SQL, SQL_FILE)
    function = r.opt_text(FUNCTION)
    if function is not None:
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", function):
            r.problems.append(Problem(f"{r.said(FUNCTION)}: use module:function", r.entries[FUNCTION]))
        chain = (*chain, TransformerOption("python", function, FUNCTION))
    if chain and record_format.transformed and all(step.kind in ("identity", "dms") for step in chain):
        return none  # no value changes, and the decoder adds the operation of DMS
    if chain:
        _check_fit(r, chain, record_format)
    else:
        for name in (SQL, SQL_FILE):
            if name in r.entries:
                r.warnings.append(f"{r.said(name)}: without effect, because no transformer of {CLASS} reads it")
    return chain


def _check_fit(r: Resolved, chain: tuple[TransformerOption, ...], record_format: SourceFormat) -> None:
    where = chain[0].where
    if not record_format.transformed:
        r.problems.append(
            Problem(
                f"{where}: records of {record_format.name} cannot be transformed: their deletes, their order and their "
                f"unsent values are not columns. Transform rows (JSON, CSV, Parquet, Avro), or make your own DataFrame "
                f"(tagstream.upsert)"
            )
        )
    if r.opt_text(_SOURCE_SCHEMA) is None and record_format is not HUDI_ROWS:
        r.problems.append(
            Problem(f"{_SOURCE_SCHEMA} is missing; transformations ({where}) need the schema of the records")
        )
    for flag in ("--dry-run", "--bootstrap-only"):
        if r.flag(flag):
            text = (
                f"{flag} does not start Spark for transformations ({where}), and the "
                f"table's schema is that of their result"
            )
            r.problems.append(Problem(f"{text}; remove them from this call"))


def _take_suffixed(r: Resolved, ids: set[str]) -> dict[str, Entry]:
    """Entries of keys that end in a transformer's id, by their whole names."""
    wanted = {f"{name}.{ident}" for name in (SQL, SQL_FILE) for ident in ids}
    found = {entry.key.replace("hoodie.deltastreamer.", "hoodie.streamer."): entry for _, entry in r.unsupported}
    r.unsupported = [
        (key, entry)
        for key, entry in r.unsupported
        if entry.key.replace("hoodie.deltastreamer.", "hoodie.streamer.") not in wanted
    ]
    return {name: entry for name, entry in found.items() if name in wanted}


def _chain(r: Resolved, named: tuple[str, ...], of_id: dict[str, Entry]) -> tuple[TransformerOption, ...]:
    if len({":" in name for name in named}) > 1:
        raise ConfigError(f"{r.said(CLASS)}: either all transformers have an id (id:class) or none")
    seen: set[str] = set()
    out = []
    for name in named:
        ident, _, given = name.rpartition(":")
        ident, given = ident.strip(), given.strip()
        if ":" in ident or (":" in name and not ident) or (ident and ident in seen):
            raise ConfigError(f"{r.said(CLASS)}: {name!r}: each transformer needs a different id, as id:class")
        seen.add(ident)
        kind = _KINDS.get(given.removeprefix(_PACKAGE))
        if kind is None:
            raise ConfigError(
                f"{r.said(CLASS)}: {given} is a class of Java that this program does not have; it has {', '.join(_KINDS)}. "
                f"Write it as a Python function, and name it with {FUNCTION}=module:function"
            )
        where = f"{given.removeprefix(_PACKAGE)}{f' {ident}' if ident else ''}"
        text = _sql(r, where, ident, of_id, from_file="File" in given) if kind == "sql" else ""
        out.append(TransformerOption(kind, text, where))
    return tuple(out)


def _sql(r: Resolved, where: str, ident: str, of_id: dict[str, Entry], *, from_file: bool) -> str:
    key = SQL_FILE if from_file else SQL
    own = of_id.get(f"{key}.{ident}")
    text = own.value if own is not None else r.opt_text(key)
    if not text:
        raise ConfigError(f"{where}: {key}{f'.{ident}' if ident else ''} is missing; it has the SQL")
    if from_file:
        said = shown(own) if own is not None else r.said(key)
        try:
            text = Path(text.removeprefix("file://")).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{said}: {e}; correct the path") from e
    if "<SRC>" not in text:
        raise ConfigError(f"{where}: the SQL does not name <SRC>, the table of the records: {text.strip()[:200]}")
    return text
