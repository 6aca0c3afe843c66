"""Tables read by hudi-rs, the independent reader in Rust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiTableBuilder

META_PREFIX = "_hoodie_"
DELETED_FIELD = "_hoodie_is_deleted"


def read_table(
    base_path: Path | str, *, meta_columns: bool = True, options: Mapping[str, str] | None = None
) -> pa.Table:
    """Latest snapshot. Without `meta_columns` Hudi's own five are left out, a user's delete flag is kept.

    ``options``: of the store, where ``base_path`` is a URL.
    """
    place = str(base_path) if "://" in str(base_path) else str(Path(base_path).resolve())
    batches = HudiTableBuilder.from_base_uri(place).with_options(dict(options or {})).build().read()
    if not batches:
        return pa.table({})
    table = pa.Table.from_batches(batches)
    if meta_columns:
        return table
    return table.select([n for n in table.column_names if not n.startswith(META_PREFIX) or n == DELETED_FIELD])


def keys_found_twice(table: pa.Table, key: str | Sequence[str] = "_hoodie_record_key") -> pa.Table:
    """Keys with more than one row, with their counts; empty when every key is there once."""
    columns = [key] if isinstance(key, str) else list(key)
    if table.num_rows == 0:
        return pa.table({})
    counts = table.group_by(columns).aggregate([([], "count_all")])
    return counts.filter(pc.greater(counts["count_all"], 1))
