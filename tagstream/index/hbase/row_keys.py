"""Row keys in HBase of record keys, plain and rebalanced."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import InvalidKeyError
from tagstream.table.keys.java_hash import string_hash_codes

# `HConstants.MAX_ROW_LENGTH`: HBase keeps the length of a row key in two bytes with a sign.
MAX_ROW_BYTES = 32_767


def plain_row_keys(keys: pa.Array) -> pa.Array:
    """The record keys themselves, as bytes (UTF-8). Raises InvalidKeyError for one that HBase cannot take."""
    return _checked(keys.cast(pa.binary()))


def rebalanced_row_keys(keys: pa.Array, buckets: int) -> pa.Array:
    """Record keys behind their bucket's number, which spreads keys in order over regions.

    ``abs(hashCode) % buckets`` with zeros in front, as wide as the greatest number: Hudi's
    ``RebalancedSparkHoodieHBaseIndex``. Java's abs of the smallest int is that int, so its remainder is negative or 0.
    """
    width = len(str(buckets - 1))
    hashes = np.abs(string_hash_codes(keys))  # in 32 bits, so NumPy keeps the smallest one too
    numbers, which = np.unique(np.fmod(hashes.astype(np.int64), buckets), return_inverse=True)
    # The sign counts into the width, as in Java's format.
    prefixes = pa.array([f"{number:0{width}d}" for number in numbers.tolist()], pa.string())
    rows = pc.binary_join_element_wise(prefixes.take(pa.array(which)), keys.cast(pa.string()), "")
    return _checked(rows.cast(pa.binary()))


def _checked(rows: pa.Array) -> pa.Array:
    if len(rows) and rows.null_count:
        raise InvalidKeyError("a record without a record key came to the HBASE index: it cannot be placed")
    if len(rows):
        sizes = pc.min_max(pc.binary_length(rows)).as_py()
        if sizes["min"] < 1 or sizes["max"] > MAX_ROW_BYTES:
            raise InvalidKeyError(
                f"HBase takes row keys of 1 to {MAX_ROW_BYTES} bytes; this batch has record keys that make {sizes['min']} "
                f"to {sizes['max']}: clean the keys at the source, or use another index"
            )
    return rows
