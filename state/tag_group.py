"""One key group's part of a batch: look every key up, decide, and stage the change of state."""

from __future__ import annotations

from state.layout import StateLayout
from state.tag_batch import TagBatch, TagResult
from table.write_profile import WriteProfile


def tag_key_group(
    group_label: int, pointer: bytes | None, batch: TagBatch, profile: WriteProfile, layout: StateLayout
) -> TagResult:
    """Tag the records of one key group.

    `pointer` is what Spark's state holds for the group (None: never seen). The local store is closed when this
    returns. Raises StateError when a durable file is missing or wrong.
    """
    raise NotImplementedError
