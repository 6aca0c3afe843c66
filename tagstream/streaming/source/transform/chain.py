"""A chain of transformers on a DataFrame of records: SQL, flattening, a Python function.

Each record has one column more, :data:`RECORD`: its place in the source, and whether it is a delete. A query that names its
columns would leave it out; where its text can be given it without changing anything else, it is.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tagstream.streaming.options.transformer_options import TransformerOption
from tagstream.streaming.source.decode.typed.typed_rows import RECORD
from tagstream.table.errors import ConfigError

_SRC = "<SRC>"
_SELECT = re.compile(r"\s*SELECT\s+(?!DISTINCT\b|ALL\b)", re.IGNORECASE)


def apply_chain(rows: DataFrame, chain: Sequence[TransformerOption], delete_field: str) -> DataFrame:
    """What the transformers make of ``rows``. ConfigError says which one fails, and why.

    The result must still say which records are deletes: by :data:`RECORD`, or by the column ``delete_field``.
    """
    for number, step in enumerate(chain):
        try:
            rows = _apply(rows, step, number)
        except PySparkException as e:
            first = next((line for line in str(e).splitlines() if line.strip()), type(e).__name__)
            raise ConfigError(f"{step.where}: {first.strip()}; correct the transformation") from e
        if RECORD not in rows.columns and delete_field not in rows.columns:
            raise ConfigError(
                f"{step.where}: it leaves out which records are deletes, and they would become rows; let its result have "
                f"the column {RECORD} as well, or {delete_field}"
            )
    return rows


def _apply(rows: DataFrame, step: TransformerOption, number: int) -> DataFrame:
    if step.kind == "identity":
        return rows
    if step.kind == "flatten":
        return rows.select(*_flat(rows.schema))
    if step.kind == "python":
        return _called(rows, step)
    view = f"TAGSTREAM_SRC_{'STREAM' if rows.isStreaming else 'SCHEMA'}_{number}"
    rows.createOrReplaceTempView(view)
    result: DataFrame | None = None
    statements = [text.strip() for text in step.text.split(";") if text.strip()]
    for text in statements:
        result = _queried(rows, text.replace(_SRC, view))
    if result is None:
        raise ConfigError(f"{step.where}: there is no statement in it")
    return result


def _queried(rows: DataFrame, text: str) -> DataFrame:
    """The rows of a query, with :data:`RECORD` where it can have it."""
    spark = rows.sparkSession
    plain = spark.sql(text)
    begin = _SELECT.match(text)
    if begin is None or RECORD in plain.columns:
        return plain
    try:
        more = spark.sql(f"{text[: begin.end()]}{RECORD}, {text[begin.end() :]}")
    except PySparkException:
        return plain
    return more if more.columns == [RECORD, *plain.columns] else plain


def _flat(schema: StructType, path: tuple[str, ...] = ()) -> list[Column]:
    """Columns of all fields that are no structs, named by their path: ``a.b`` becomes ``a_b``. Arrays and maps stay."""
    out: list[Column] = []
    for field in schema.fields:
        inside = (*path, field.name)
        if isinstance(field.dataType, StructType) and inside != (RECORD,):
            out += _flat(field.dataType, inside)
        else:
            out.append(F.col(".".join(f"`{name}`" for name in inside)).alias("_".join(inside)))
    return out


def _called(rows: DataFrame, step: TransformerOption) -> DataFrame:
    module, _, name = step.text.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise ConfigError(
            f"{step.where}={step.text}: {e}; the module must be found by the job's Python (PYTHONPATH, or --py-files)"
        ) from e
    result = function(rows)
    if not isinstance(result, DataFrame):
        raise ConfigError(f"{step.where}={step.text}: it gave {type(result).__name__}, and must give a DataFrame")
    return result
