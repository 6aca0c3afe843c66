"""Write log files: whole blocks, in a new file."""

from __future__ import annotations

from collections.abc import Iterable

from tagstream.table.file_group.log.format import ROLLBACK_COMMAND, BlockType, HeaderKey, encode_block
from tagstream.table.storage.storage import Storage


def write_log_file(storage: Storage, rel: str, blocks: Iterable[bytes]) -> int:
    """Write the blocks into a file of a name that nobody else uses; returns its size in bytes.

    Blocks are taken one by one, so a generator keeps one in memory. Other writers' log files are never appended to.
    """
    size = 0
    with storage.open_output(rel) as out:
        for block in blocks:
            size += out.write(block)
    return size


def rollback_block(instant: str, target: str) -> bytes:
    """Command block of the rollback ``instant``: readers forget all earlier blocks of the instant ``target``."""
    header = {
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.TARGET_INSTANT_TIME: target,
    }
    return encode_block(BlockType.COMMAND, header, b"")
