"""A table as a command that changes nothing looks at it."""

from __future__ import annotations

from tagstream.admin.output import Output
from tagstream.table.meta_client.hoodie_table import HoodieTable


def readable(table: HoodieTable, out: Output) -> HoodieTable:
    """The table, without a metadata table that its properties name and whose folder is not there.

    A stream and the commands that change the table take it out of the properties.
    """
    if not table.has_lost_metadata_table:
        return table
    names = ", ".join(table.config.metadata_partitions)
    out.note(
        f"table {table.config.name}: its properties name a metadata table ({names}) that is not there; it is passed over, "
        "and the next writer drops it"
    )
    return table.without_metadata_table()
