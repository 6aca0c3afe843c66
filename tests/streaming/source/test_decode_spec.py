"""What delete blocks are given as ordering values."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa

from tagstream.state.ordering import encode_ordering
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.file_group.delete_block import delete_blocks


def spec(merge_on_read: bool) -> DecodeSpec:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 0}
    fields = [{"name": "id", "type": "string"}, {"name": "ts", "type": decimal}]
    avro = json.dumps({"type": "record", "name": "event", "fields": fields})
    return DecodeSpec(
        avro, avro, ("id",), (), "NON_PARTITION", False, False, ("ts",), True, False, False, merge_on_read
    )


def test_a_value_from_the_table_that_no_delete_block_holds_deletes_in_natural_order() -> None:
    values = pa.array([Decimal(5), Decimal(10**15), None], pa.decimal128(18, 0))
    codes, natural = pa.array(np.asarray(encode_ordering(values))), values.is_null()
    found = spec(merge_on_read=True).ordering_values(codes, natural)
    assert found.to_pylist() == [Decimal(5), None, None]
    assert len(delete_blocks(pa.array(["a", "b", "c"]), "p", found, "20260101000000000", "{}")) == 2
    assert spec(merge_on_read=False).ordering_values(codes, natural).to_pylist() == values.to_pylist()
