"""Figures of decoders: every format and every form of files has the records."""

from __future__ import annotations

from bench.decode_formats import figures


def test_every_format_is_measured() -> None:
    found = {line["format"]: line for line in figures(8, 200, 0)}
    files = {"JSON lines", "Parquet, zstd", "Avro, deflate", "CSV with a header"}
    assert files < set(found)
    assert {"json", "debezium-json", "debezium-flat-json", "avro", "debezium-avro", "protobuf"} < set(found)
    assert all(line["records_s"] > 0 and line["bytes"] > 0 for line in found.values())
