"""The stream's source as raw records with their position, and their key columns as the tag step takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.decode.key_decoder import FLAG_BAD
from streaming.decode_spec import DecodeSpec, cached_decoder
from streaming.options import Options
from streaming.position import LinePositions

RAW_COLUMNS = ("key", "value", "src", "pos_hi", "pos_lo")


def raw_records(spark: SparkSession, options: Options, starting_offsets: str | None = None) -> DataFrame:
    """Streaming frame of ``key, value`` (binary), ``src``, ``pos_hi``, ``pos_lo`` and, for files, ``block_start``.

    Kafka: position = (partition, offset), ``src`` null. Files: (modification time in us, path, byte of the line).
    """
    return _kafka(spark, options, starting_offsets) if options.source_class == "kafka" else _files(spark, options)


def _kafka(spark: SparkSession, options: Options, starting_offsets: str | None) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**options.kafka_options)
    reader = (
        reader.option("subscribe", options.kafka_topic)
        .option("startingOffsets", starting_offsets or options.starting_offsets)
        .option("failOnDataLoss", str(options.fail_on_data_loss).lower())
        .option("maxOffsetsPerTrigger", options.source_limit)
    )
    if options.min_partitions:
        reader = reader.option("minPartitions", options.min_partitions)
    return reader.load().select(
        "key",
        "value",
        F.lit(None).cast("string").alias("src"),
        F.col("partition").cast("long").alias("pos_hi"),
        F.col("offset").alias("pos_lo"),
        F.lit(-1).cast("long").alias("block_start"),
    )


def _files(spark: SparkSession, options: Options) -> DataFrame:
    reader = (
        spark.readStream.format("text")
        .option("lineSep", "\n")  # the default would take a lone \r for a line's end
        .option("recursiveFileLookup", "true")
        .option("maxFileAge", "36500d")  # the default silently skips files a week older than the newest
        .option("maxBytesPerTrigger", options.source_limit)
    )
    return reader.load(options.dfs_root).select(
        F.lit(None).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.col("_metadata.file_path").alias("src"),
        F.unix_micros("_metadata.file_modification_time").alias("pos_hi"),
        F.lit(-1).cast("long").alias("pos_lo"),
        F.col("_metadata.file_block_start").alias("block_start"),
    )


def keyed_records(raw: DataFrame, spec: DecodeSpec, labels: tuple[int, ...]) -> DataFrame:
    """Key columns of every record (good or bad) and the label of its key group in ``kg``.

    The group is crc32 of the key modulo the number of groups; bad records, which have no key, are spread by position.
    """
    ordering = "binary" if spec.ordering_kind == "bytes" else "long"
    schema = (
        f"skey binary, part string, ord {ordering}, flags tinyint, src string, pos_hi long, pos_lo long, "
        "value binary, reason string"
    )
    keys = raw.mapInArrow(make_key_function(spec), schema)
    good = key_group_label(F.expr("substring(skey, 2)"), labels)
    bad = _label(F.pmod(F.col("pos_lo"), F.lit(len(labels))), labels)
    return keys.withColumn("kg", F.when(F.col("flags").bitwiseAND(F.lit(FLAG_BAD)) != 0, bad).otherwise(good))


def key_group_label(key: Column, labels: tuple[int, ...]) -> Column:
    """Label of the key group of a key (binary, without the byte that a state key begins with)."""
    return _label(F.pmod(F.crc32(key), F.lit(len(labels))), labels)


def _label(index: Column, labels: tuple[int, ...]) -> Column:
    return F.element_at(F.array(*[F.lit(x) for x in labels]), (index + 1).cast("int"))


def make_key_function(spec: DecodeSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The ``mapInArrow`` function that decodes keys; files get their line positions here."""

    def keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = cached_decoder(spec)
        lines = LinePositions()
        for batch in batches:
            columns = {name: batch.column(name) for name in RAW_COLUMNS}
            if spec.files:
                columns["pos_lo"] = lines.assign(columns["src"], batch.column("block_start"), columns["value"])
            yield decoder.keys(pa.RecordBatch.from_pydict(columns))

    return keys
