"""State keys: what identifies a row for the index, ``GLOBAL_KEY + key`` or ``PARTITIONED_KEY + partition + NUL + key``."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.tag_batch import GLOBAL_KEY, PARTITIONED_KEY


def state_keys(keys: pa.Array, partitions: pa.Array, *, global_index: bool) -> pa.Array:
    """State keys (binary) of record keys in their partitions; a global index leaves the partitions out."""
    if global_index:
        return pc.binary_join_element_wise(GLOBAL_KEY, keys.cast(pa.binary()), b"")
    prefix = pc.binary_join_element_wise(PARTITIONED_KEY, partitions.cast(pa.binary()), b"")
    return pc.binary_join_element_wise(prefix, keys.cast(pa.binary()), b"\x00")


def record_keys(skeys: pa.Array) -> pa.Array:
    """Record keys (string) of state keys, null for a null: after the first byte, or the NUL that ends the partition path."""
    flat = skeys.cast(pa.string())
    first = pc.first(flat).as_py()  # that is not null
    if first is not None and first[:1] != GLOBAL_KEY.decode():
        return pc.list_element(pc.split_pattern(flat, "\0", max_splits=1), 1)
    # binary_slice of Arrow 26 fails on binary values ("Negative buffer resize"); the text form does not
    return pc.utf8_slice_codeunits(flat, 1)
