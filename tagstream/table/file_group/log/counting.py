"""Which blocks of a slice's logs count, found by walking them in order."""

from __future__ import annotations

from tagstream.table.file_group.log.block import LogBlock
from tagstream.table.file_group.log.format import BlockType


def with_block(counted: list[LogBlock], block: LogBlock) -> list[LogBlock]:
    """The blocks that count, with one more.

    A rollback takes those of its target away. A log compaction's block stands for those of the instants it names, at the
    place of the last of them: blocks written since the compaction was planned come after it.
    """
    if block.type is BlockType.COMMAND:
        return [earlier for earlier in counted if earlier.instant != block.target_instant]
    replaced = block.compacted_instants
    if not replaced:
        counted.append(block)  # in place: a slice may have thousands of blocks
        return counted
    places = [
        at for at, earlier in enumerate(counted) if earlier.instant in replaced or earlier.instant == block.instant
    ]
    if not places:
        return [*counted, block]
    behind = places[-1] + 1
    kept = [earlier for earlier in counted[:behind] if earlier.instant not in replaced]
    return [*kept, block, *counted[behind:]]
