"""How great files become, and which take inserts."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.table.config import Kind
from tagstream.table.option_fields import option


@dataclass(frozen=True)
class FileSizeOptions:
    """Sizes of base files and records in bytes, with Hudi's names and defaults.

    ``log_ratio``: Parquet bytes a log byte. ``record_bytes`` holds until a commit has written more than ``trust_share`` of
    the small file limit.
    """

    max_file_bytes: int = option(
        "hoodie.parquet.max.file.size",
        Kind.BYTES,
        "Size in bytes up to which a base file grows.",
        default=125_829_120,
        minimum=1,
    )
    small_file_limit: int = option(
        "hoodie.parquet.small.file.limit",
        Kind.BYTES,
        "Inserts are added to base files smaller than this; 0: to none.",
        default=104_857_600,
    )
    record_bytes: int = option(
        "hoodie.copyonwrite.record.size.estimate",
        Kind.BYTES,
        "Bytes of a record, until a commit gives a better estimate.",
        default=1024,
        minimum=1,
    )
    trust_share: float = option(
        "hoodie.record.size.estimation.threshold",
        Kind.FLOAT,
        "A commit counts for the average record size if it wrote more than this share of the small file limit.",
        default=1.0,
        minimum=0,
    )
    inserts_per_file: int = option(
        "hoodie.copyonwrite.insert.split.size",
        Kind.INT,
        "Largest number of inserts in one new file.",
        default=500_000,
        minimum=1,
    )
    log_ratio: float = option(
        "hoodie.logfile.to.parquet.compression.ratio",
        Kind.FLOAT,
        "Expected ratio of a log's size after compaction to its size before, for the choice of small files.",
        default=0.35,
        minimum=0,
    )
