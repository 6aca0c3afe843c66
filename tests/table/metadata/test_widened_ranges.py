"""Ranges of a column over files of which some are from before it was widened."""

from __future__ import annotations

import pyarrow as pa

from tagstream.table.metadata.column_ranges import ColumnRange, merged_ranges, ranges_of_rows
from tagstream.table.metadata.records import _merged_stats


def ranges(values: list[object], kind: pa.DataType) -> ColumnRange:
    return ranges_of_rows(pa.table({"c": pa.array(values, kind)}), {"c"})["c"]


def test_the_range_has_the_widest_type() -> None:
    whole = merged_ranges([ranges([1, 5], pa.int32()), ranges([2**40, 3], pa.int64())])
    assert (whole.kind, whole.low, whole.high, whole.rows) == ("long", 1, 2**40, 4)
    whole = merged_ranges([ranges([0.5, 2.0], pa.float64()), ranges([0.3], pa.float32())])
    assert (whole.kind, whole.low, whole.high) == ("double", 0.3, 2.0), "as readers widen a float"
    low = ranges([None, pa.scalar("1.25").cast(pa.decimal128(8, 2)).as_py()], pa.decimal128(8, 2))
    high = ranges([pa.scalar("123456789012.25").cast(pa.decimal128(14, 2)).as_py()], pa.decimal128(14, 2))
    whole = merged_ranges([low, high])
    assert (whole.kind, whole.low, whole.high, whole.nulls) == ("decimal(14,2)", 125, 12345678901225, 1)
    nothing = merged_ranges([ranges([None], pa.float32()), ranges([1.0], pa.float64())])
    assert (nothing.kind, nothing.low, nothing.high) == ("double", 1.0, 1.0)


def test_records_of_both_types_are_joined() -> None:
    def stats(wrapper: str, low: object, high: object) -> dict[str, object]:
        package = "org.apache.hudi.avro.model."
        ends = {n: (package + wrapper, {"value": v}) for n, v in (("minValue", low), ("maxValue", high))}
        return {**ends, "valueCount": 2, "nullCount": 0, "totalSize": 1, "totalUncompressedSize": 1}

    found = _merged_stats(stats("IntWrapper", 1, 5), stats("LongWrapper", 3, 2**40))
    assert found["minValue"] == ("org.apache.hudi.avro.model.LongWrapper", {"value": 1})
    assert found["maxValue"] == ("org.apache.hudi.avro.model.LongWrapper", {"value": 2**40})
    found = _merged_stats(stats("DoubleWrapper", 0.5, 2.0), stats("FloatWrapper", 0.30000001192092896, 1.0))
    assert found["minValue"] == ("org.apache.hudi.avro.model.DoubleWrapper", {"value": 0.3})
    assert _merged_stats(stats("StringWrapper", "a", "b"), stats("LongWrapper", 1, 2))["minValue"] is None
