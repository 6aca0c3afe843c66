"""How a table writes record keys where Hudi's versions disagree: the complex generator with one key field.

Hudi 0.14.1 to 1.0.2 write the value alone (``k1``), versions before and after ``field:value`` (``id:k1``). The wrong one
would double every record, so the rows of the table decide.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import scan_snapshot, snapshot_schema
from tagstream.table.schema.schema import RECORD_KEY


def names_single_key(table: HoodieTable) -> bool | None:
    """True for ``field:value``, False for the value alone; None when it does not matter or no row can tell."""
    fields = table.config.record_key_fields
    if "Complex" not in table.config.key_generator or len(fields) != 1:
        return None
    timeline = table.timeline()
    if fields[0] not in snapshot_schema(table, timeline, table.view(timeline)).names:
        return None  # a new table: no commit, property or file has a schema yet
    _, batches = scan_snapshot(table, [RECORD_KEY, fields[0]])
    batch = next((batch for batch in batches if batch.num_rows), None)
    if batch is None:
        return None
    key, value = batch.column(RECORD_KEY)[0].as_py(), batch.column(fields[0]).slice(0, 1)
    if pa.types.is_string(value.type):
        return bool(key == f"{fields[0]}:{pc.fill_null(value, '')[0].as_py()}")
    # Other types never begin with their field's name and a colon.
    return bool(key.startswith(f"{fields[0]}:"))
