"""The table that a new stream of changes reads where its options name none: that of its first record, before it begins.

A task that sees it fails its query, which begins again with the table known: right, but Spark writes sixty lines of errors
about it. Only a stream that has no record at its start learns it that way.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.streaming.batch.epoch import newest_batch
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.source import NEW_KEY, OLD_KEY
from tagstream.streaming.start.first_records import first_records
from tagstream.table.storage.storage import Storage

_RECORDS = 200  # nearly always the first one names its table


def with_first_table(decode: DecodeSpec, options: Options, root: Storage, spark: SparkSession) -> DecodeSpec:
    """``decode`` with the table of the first record that names one; the same where none does, or another is known.

    ``root``: of the query's checkpoint; one that has begun keeps what its batches see.
    """
    if options.transformers or options.source_class == "frame" or newest_batch(root, "offsets") is not None:
        return decode
    decoder = cached_decoder(decode)
    if not decoder.wants_table or (options.source_class == "kafka" and options.starting_offsets == "latest"):
        return decode
    records = list(first_records(options, spark, _RECORDS))
    if not records:
        return decode
    columns = {
        "key": pa.nulls(len(records), pa.binary()),
        "value": pa.array(records, pa.binary()),
        "src": pa.nulls(len(records), pa.string()),
        "pos_hi": pa.array([0] * len(records), pa.int64()),
        "pos_lo": pa.array(range(len(records)), pa.int64()),
        **{name: pa.nulls(len(records), pa.binary()) for name in (OLD_KEY, NEW_KEY) if decode.reads_headers},
    }
    decoder.keys(pa.RecordBatch.from_pydict(columns))
    pinned = decoder.first_table()
    if decoder.watch is not None:
        decoder.watch.take()  # the stream notices new columns itself
    return decode if pinned is None else decode.of_table(pinned)
