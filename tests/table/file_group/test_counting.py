"""Which blocks of a slice count when rollbacks and log compactions are among them."""

from __future__ import annotations

from pathlib import Path

from tagstream.table.file_group.log_file import LogBlock, with_block
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.storage.posix import PosixStorage

_STORAGE = PosixStorage(str(Path("/nowhere")))


def block(instant: str, compacted: str = "", kind: BlockType = BlockType.AVRO_DATA, target: str = "") -> LogBlock:
    header = {"INSTANT_TIME": instant, "COMPACTED_BLOCK_TIMES": compacted, "TARGET_INSTANT_TIME": target}
    return LogBlock(_STORAGE, "f", kind, 0, 0, 0, header)


def counted(*blocks: LogBlock) -> list[tuple[str, str]]:
    found: list[LogBlock] = []
    for each in blocks:
        found = with_block(found, each)
    return [(str(each.instant), each.type.name) for each in found]


def test_a_log_compaction_stands_where_the_last_of_its_blocks_was() -> None:
    deletes = block("9", "1,2", BlockType.DELETE)
    found = counted(block("1"), block("2"), block("3"), block("9", "1,2"), deletes, block("4"))
    assert found == [("9", "AVRO_DATA"), ("9", "DELETE"), ("3", "AVRO_DATA"), ("4", "AVRO_DATA")]


def test_a_log_compaction_of_log_compactions() -> None:
    found = counted(block("1"), block("2"), block("5", "1,2"), block("6"), block("9", "5,6"))
    assert found == [("9", "AVRO_DATA")]


def test_a_log_compaction_whose_blocks_are_elsewhere_counts_by_itself() -> None:
    assert counted(block("3"), block("9", "1,2")) == [("3", "AVRO_DATA"), ("9", "AVRO_DATA")]


def test_a_rollback_takes_its_target_away_wherever_it_stands() -> None:
    command = block("8", "", BlockType.COMMAND, "1")
    assert counted(block("1"), block("2"), block("1"), command) == [("2", "AVRO_DATA")]
