"""What differs between the releases of Spark that this project runs on: 3.5, 4.0, 4.1 and 4.2.

Only this file checks the release. All other code is written for the newest one, and calls the functions here where an older
one lacks something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from importlib.util import find_spec
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.find_spark_home import _find_spark_home as find_spark_home
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


RELEASE = _release(pyspark.__version__)
OLDEST, NEWEST = (3, 5), (4, 2)  # the tested range (docs/operations/platforms.md)
_HAS_ARROW = RELEASE >= (4, 0)  # DataFrame.toArrow, createDataFrame of an Arrow table, applyInArrow
_HAS_IDS = RELEASE >= (4, 1)  # DataFrame.repartitionById
_ROWS = 64_000  # of a table that is sent to Spark in one piece
# Since 4.2 the zone of timestamps is an argument; before, it is UTC.
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}

_SCALA = {(3, 5): "2.12"}  # of PySpark's own distribution, if no jar shows it

Grouped = Callable[..., pa.Table]


def problem(spark: str, arrow: str, *, distutils: bool) -> str | None:
    """Why these versions of Spark and pyarrow cannot run together, and what to install; None when no problem is known.

    ``distutils``: whether this Python has the module.
    """
    release = _release(spark)
    if release < OLDEST:
        return f"Spark {spark} is too old: this program runs on Spark {_text(OLDEST)} to {_text(NEWEST)}"
    if release < (4, 2) and _release(arrow) >= (26, 0):
        return (
            f"pyarrow {arrow} does not work with Spark {spark}: Spark before 4.2 passes numbers to it that it refuses; "
            "pip install 'pyarrow<26', on every host that runs Spark's workers"
        )
    if release < (4, 0) and not distutils:
        return f"Spark {spark} needs the module distutils, which Python lacks since 3.12: pip install setuptools"
    return None


def running_problem() -> str | None:
    """:func:`problem` of the installed versions."""
    return problem(pyspark.__version__, pa.__version__, distutils=find_spec("distutils") is not None)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow columns of a frame. Timestamps with a zone have the zone UTC."""
    return to_arrow_schema(schema, **_UTC)


def to_arrow(rows: DataFrame) -> pa.Table:
    """All rows on the driver: ``DataFrame.toArrow``, which exists since 4.0."""
    if _HAS_ARROW:
        return rows.toArrow()
    batches = rows._collect_as_arrow()  # type: ignore[operator]  # noqa: SLF001 (toPandas uses it)
    return pa.Table.from_batches(batches, arrow_schema(rows.schema))


def from_arrow(spark: SparkSession, table: pa.Table, schema: str) -> DataFrame:
    """A frame of an Arrow table: ``createDataFrame``, which accepts one since 4.0. ``schema``: in Spark's notation.

    Before 4.0 the table is sent as bytes of an Arrow stream: pandas would make floats of integers if a column has nulls.
    """
    if _HAS_ARROW:
        return spark.createDataFrame(table, schema)
    pieces = [(_packed(table.slice(at, _ROWS)),) for at in range(0, table.num_rows, _ROWS)]
    return spark.createDataFrame(pieces, "packed binary").mapInArrow(_unpacked, schema)


def repartition_by_id(rows: DataFrame, labels: Sequence[int], column: str) -> DataFrame:
    """Send the rows whose ``column`` is n to partition n: ``DataFrame.repartitionById``, which exists since 4.1.

    ``labels``: for each partition an int that Spark's hash sends there (``state.layout.partition_labels``). Before 4.1 the
    rows are repartitioned by the label of n.
    """
    if _HAS_IDS:
        return rows.repartitionById(len(labels), column)
    label = F.element_at(F.array(*(F.lit(label) for label in labels)), F.col(column) + 1)
    return rows.repartition(len(labels), label.cast("int"))


def apply_in_arrow(grouped: GroupedData, function: Grouped, schema: str, rows: pa.Schema) -> DataFrame:
    """``grouped.applyInArrow(function, schema)``, which exists since 4.0. ``rows``: schema of the groups.

    Before 4.0 groups are passed through pandas, so columns that may be null must not be numbers.
    """
    if _HAS_ARROW:
        return grouped.applyInArrow(function, schema)

    def alone(key: Any, found: Any) -> Any:
        return function(_scalars(key), _from_pandas(found, rows)).to_pandas()

    return grouped.applyInPandas(alone, schema)


def cogroup_in_arrow(
    left: DataFrame, right: DataFrame, key: str, function: Grouped, schema: str, rows: pa.Schema
) -> DataFrame:
    """Group both frames by the int column ``key``, and call ``function(key, left, right)`` for each pair of groups.

    ``PandasCogroupedOps.applyInArrow`` exists since 4.0. Before, the rows of ``right`` are sent as bytes of an Arrow stream.
    ``rows``: schema of ``left``, as in :func:`apply_in_arrow`.
    """
    if _HAS_ARROW:
        return left.groupBy(key).cogroup(right.groupBy(key)).applyInArrow(function, schema)
    given = arrow_schema(right.schema)
    packed = right.mapInArrow(_packer(key), f"{key} int, packed binary")

    def joined(number: Any, found: Any, others: Any) -> Any:
        tables = [_read(data) for data in others["packed"]]
        both = pa.concat_tables(tables).cast(given) if tables else given.empty_table()
        return function(_scalars(number), _from_pandas(found, rows), both).to_pandas()

    return left.groupBy(key).cogroup(packed.groupBy(key)).applyInPandas(joined, schema)


def checkpoint_package() -> str:
    """The Java package of Spark's checkpoint file managers, which was moved in 4.1."""
    streaming = "org.apache.spark.sql.execution.streaming"
    return f"{streaming}.checkpointing" if RELEASE >= (4, 1) else streaming


def scala_version() -> str:
    """The Scala version of the release: "2.13", or for Spark 3.5 also "2.12", by the Scala jar of the installed Spark."""
    try:
        with redirect_stderr(StringIO()):
            folder = Path(find_spark_home(), "jars")
    except (
        SystemExit
    ):  # on YARN a driver has Spark's jars but no folder of Spark, and PySpark's function then ends the process
        return _SCALA.get(RELEASE, "2.13")
    found = next((path.name for path in sorted(folder.glob("scala-library-*.jar"))), "")
    return ".".join(found.removeprefix("scala-library-").split(".")[:2]) if found else _SCALA.get(RELEASE, "2.13")


def oldest_java() -> int:
    """The oldest Java that the release runs on."""
    return 17 if RELEASE >= (4, 0) else 8


def _text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"


def _packed(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    data: bytes = out.getvalue().to_pybytes()
    return data


def _read(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from _read(data).to_batches()


def _packer(key: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            numbers = pc.unique(table.column(key))
            pieces = [_packed(table.filter(pc.equal(table.column(key), number))) for number in numbers]
            yield pa.RecordBatch.from_arrays([numbers.cast(pa.int32()), pa.array(pieces, pa.binary())], [key, "packed"])

    return pack


def _scalars(key: Iterable[Any]) -> tuple[pa.Scalar, ...]:
    return tuple(pa.scalar(value.item() if hasattr(value, "item") else value) for value in key)


def _from_pandas(rows: Any, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pandas(rows, schema, preserve_index=False)
