"""How Parquet is written, in base files and in log blocks alike: what every Hudi engine reads."""

from __future__ import annotations

from typing import Any

from tagstream.table.errors import ConfigError

# Level 6 is what the JVM writes; Arrow's own default for gzip is 9, which is slower for little.
_CODECS: dict[str, tuple[str, int | None]] = {
    "gzip": ("gzip", 6),
    "snappy": ("snappy", None),
    "zstd": ("zstd", 3),
    "uncompressed": ("none", None),
}


def writer_options(codec: str) -> dict[str, Any]:
    """Keyword arguments of a Parquet writer for a codec of ``hoodie.parquet.compression.codec`` (any case)."""
    name = codec.lower()
    if name not in _CODECS:
        known = ", ".join(sorted(_CODECS))
        raise ConfigError(f"hoodie.parquet.compression.codec={codec!r} cannot be written; use one of {known}")
    compression, level = _CODECS[name]
    return {
        "compression": compression,
        "compression_level": level,
        "version": "1.0",
        "data_page_version": "1.0",
        "use_dictionary": True,
        "store_schema": False,
    }
