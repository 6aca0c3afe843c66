"""Whether Spark can run what a DataFrame is made of as a stream into a table: asked before anything is made.

Spark itself looks when a query starts, which is when the table and the checkpoint are there. It is asked here with the plan
of the DataFrame, and with the state index behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tagstream.index.family.registry import FACTS, STATE
from tagstream.table.errors import ConfigError

_OFF = "spark.sql.streaming.unsupportedOperationCheck"


def check_plan(rows: DataFrame, index: str) -> None:
    """ConfigError with Spark's reason for a streaming DataFrame that no query with an index of this type can write."""
    if rows.sparkSession.conf.get(_OFF, "true") == "false":  # nor does Spark look then
        return
    why = _refusal(rows)
    if why is not None:
        raise ConfigError(
            f"the DataFrame can't go into a table: {why}. Its rows must be appended, and an aggregation needs a watermark "
            "(withWatermark) for that"
        )
    why = _refusal(_with_state(rows)) if index == STATE else None
    if why is not None:
        raise ConfigError(
            f"the DataFrame can't go into a table with the index that is the state of the stream "
            f"(hoodie.index.type={STATE}), which keeps state behind it: {why}. Give an index that asks the table: "
            f"hoodie.index.type={', '.join(sorted(FACTS))} (docs/indexes.md)"
        )


def _refusal(rows: DataFrame) -> str | None:
    """What Spark has against the plan, as its own check of a query says it; None for nothing."""
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001 (PySpark looks at a plan when its query starts only)
    check = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming
    try:
        check(
            rows._jdf.queryExecution().analyzed(),  # noqa: SLF001
            jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
        )
    except (AnalysisException, Py4JJavaError) as e:
        return str(e).splitlines()[0].rstrip(";. ")
    return None


def _with_state(rows: DataFrame) -> DataFrame:
    """The DataFrame with operators behind it as the job's own plan has them."""
    grouped = rows.mapInArrow(_no_keys, "kg int").groupBy("kg")
    return grouped.applyInPandasWithState(_no_rows, "kg int", "pointer binary", "append", GroupStateTimeout.NoTimeout)


def _no_keys(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()


def _no_rows(_key: Any, _rows: Iterable[pd.DataFrame], _state: GroupState) -> Iterator[pd.DataFrame]:
    yield from ()
