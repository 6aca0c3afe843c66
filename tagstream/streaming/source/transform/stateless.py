"""Whether a transformation works on each record for itself: looked at in Spark's own plan of it.

A batch that is done again, and records that are read again from older offsets, must come out of it as they did before,
whatever other records are read with them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tagstream.table.errors import ConfigError

# Names of Spark's logical operators that see one record at a time. A join is one where the other side is no stream.
_PER_RECORD = frozenset(
    """Project Filter SubqueryAlias View Generate Join Union ResolvedHint UnresolvedHint TypedFilter MapElements
    DeserializeToObject SerializeFromObject MapInPandas MapInArrow PythonMapInArrow LateralJoin
    StreamingRelation StreamingRelationV2 StreamingDataSourceV2Relation StreamingDataSourceV2ScanRelation LogicalRDD
    WithCTE CTERelationRef CTERelationDef Repartition RepartitionByExpression RebalancePartitions""".split()
)


def puts_together(rows: DataFrame) -> str | None:
    """Spark's name of what puts records together in a streaming DataFrame: an aggregation, a sort, a window, a limit. None
    where each record is worked on for itself, so that Spark keeps nothing from batch to batch."""
    return _offender(rows._jdf.queryExecution().analyzed())  # noqa: SLF001 (PySpark shows a plan as text only)


def check_stateless(rows: DataFrame, where: str) -> None:
    """ConfigError for a streaming DataFrame that puts records together."""
    found = puts_together(rows)
    if found is not None:
        raise ConfigError(
            f"{where}: {found} puts records together, and a transformation works on each record for itself: records that "
            "are read again would come out differently. Do that in a stream of your own, and give its DataFrame to "
            "tagstream.upsert"
        )


def _offender(plan: Any) -> str | None:
    if not plan.isStreaming():
        return None
    name = str(plan.nodeName())
    children = [plan.children().apply(i) for i in range(plan.children().size())]
    if name not in _PER_RECORD:
        return name
    if name in ("Join", "LateralJoin") and sum(child.isStreaming() for child in children) > 1:
        return "Join of the records with themselves"
    return next((found for child in children if (found := _offender(child)) is not None), None)
