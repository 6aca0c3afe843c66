"""Change events as Debezium's PostgreSQL connector writes them without schemas, with the whole row before the change
(REPLICA IDENTITY FULL), which Flink's format debezium-json requires.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from bench.inputs.event_rows import as_bytes, json_objects

_SOURCE = (
    '"source":{"version":"3.6.3.Final","connector":"postgresql","name":"bench","ts_ms":%s,"snapshot":"false","db":"postgres",'
    '"sequence":"[\\"22551696\\",\\"22551760\\"]","schema":"shop","table":"events","txId":786,"lsn":%s,"xmin":null}'
)


def envelopes(before: pa.Table, after: pa.Table) -> bytes:
    """One JSON object per line. ``before``: nulls in all columns for an inserted row. Both tables have the same length."""
    ids, times = before["id"].combine_chunks(), after["ts"].combine_chunks()
    old = pc.fill_null(json_objects(before), "null")
    op = pc.if_else(ids.is_null(), "c", "u")
    ts = pc.cast(times, pa.string())
    start, between, end = _SOURCE.split("%s")
    parts = ['{"before":', old, ',"after":', json_objects(after), ",", start, ts, between, ts, end]
    parts += [',"transaction":null,"op":"', op, '","ts_ms":', ts, "}\n"]
    return as_bytes(pc.binary_join_element_wise(*parts, ""))
