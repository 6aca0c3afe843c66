"""Write log files: whole blocks, in a new file that is durable when the call returns."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tagstream.table.errors import TableError
from tagstream.table.file_group.log.format import ROLLBACK_COMMAND, BlockType, HeaderKey, encode_block


def write_log_file(path: str, blocks: Iterable[bytes]) -> int:
    """Write the blocks into a file that must not exist yet; returns its size in bytes.

    Blocks are taken one by one, so a generator keeps one in memory. Other writers' log files are never appended to.
    """
    try:
        file = open(path, "xb")  # noqa: SIM115 -- closed by the with block below
    except FileExistsError as error:
        raise TableError(f"log file {path} exists already; take the next version or another write token") from error
    with file:
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def rollback_block(instant: str, target: str) -> bytes:
    """Command block of the rollback ``instant``: readers forget all earlier blocks of the instant ``target``."""
    header = {
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.TARGET_INSTANT_TIME: target,
    }
    return encode_block(BlockType.COMMAND, header, b"")
