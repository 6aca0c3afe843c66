"""No index: the operations INSERT and BULK_INSERT write every record as a new row, and look up no key.

It is in the place of an index, so that a stream which appends has the same steps as one with a pull-type index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions


class NoLookUp(HoodieIndex):
    """Keys are not looked up. ``is_global`` says only that a record key alone makes the state key."""

    name = "no index"
    java_classes = ()
    is_global = True
    can_index_log_files = False
    is_implicit_with_storage = True
    knows_absence = False
    knows_ordering = True  # nothing is compared, so no late row has to be found when a file is merged

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> NoLookUp:  # noqa: ARG003
        """It has no options."""
        return cls()

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:  # noqa: ARG002
        """ValueError: an operation that appends has no locations."""
        raise ValueError("INSERT and BULK_INSERT look up no key")
