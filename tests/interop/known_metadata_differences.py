"""Where a metadata table of ours may differ from one that real Hudi wrote from the same rows, and why. Nothing else may.

``0.15`` stands for Hudi 0.15.0 and version 6, ``1.x`` for Hudi 1.2.0 and versions 8 and 9.
"""

from __future__ import annotations

import json
from typing import Any

from tests.interop.known_differences import ABSENT, Known, anything, the_last_of

HFILE = r"(base|log) \S+ (block \d+ )?"
STAT = r"timeline \S+\.(delta)?commit stat \S+ \S+ "
OPERATION = r"timeline \S+\.compaction\.requested operations \S+ \S+ "


def same_types(real: str, ours: str) -> bool:
    """Two Avro schemas that are equal but for their documentation."""
    return bool(_plain(json.loads(real)) == _plain(json.loads(ours)))


def _plain(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_plain(each) for each in avro]
    if isinstance(avro, dict):
        return {key: _plain(value) for key, value in avro.items() if key != "doc"}
    return avro


def wider(real: Any, ours: Any) -> bool:
    """Ends of ranges: of one type, or there is none of a commit that has only deleted."""
    return ours is None or bool(real[0] == ours[0])


def number(value: Any) -> bool:
    """A count or a size."""
    return isinstance(value, int | float) and value >= 0


SCHEMAS = (
    Known(rf"timeline \S+\.(delta)?commit extraMetadata schema|{HFILE}info schema|log \S+ block \d+ header SCHEMA",
          anything, anything, "no documentation in it: 4 of its 9 kB, which each block would carry", both=same_types),
)  # fmt: skip

HFILES = (
    Known(rf"{HFILE}trailer version", (0, 3), (3, 3), "1.x: the minor version; HBase's 3 is what both readers take"),
    Known(rf"{HFILE}trailer raw bytes", ABSENT, "<a place>", "1.x leaves out what HBase's reader asks for"),
    Known(rf"{HFILE}info hfile\.AVG_KEY_LEN", 0, 12, "1.x counts the row alone; HBase all of an entry's key"),
    Known(rf"{HFILE}info hfile\.LASTKEY", ("<its end>", b""), ("<its end>", b"\0\x7f" + b"\xff" * 7 + b"\x04"),
          "1.x: the row alone; HBase's form, with family, time and type, is what both readers take"),
    Known(rf"{HFILE}trailer (blocks|last block)", number, number,
          "blocks of 64 kB, where Hudi has a MB: a look-up of one key uncompresses less",
          both=lambda real, ours: real < ours),
    Known(r"base \S+ record .* _hoodie_file_name", lambda v: str(v).endswith(".hfile"), None,
          "meta columns are not populated, as the table's properties say; so an entry goes through a compaction as it is"),
)  # fmt: skip

TIMELINE = (
    Known(r"timeline \S+\.deltacommit\.inflight partitionToWriteStats", lambda v: isinstance(v, dict) and bool(v), {},
          "the workload profile, which nothing reads of a metadata table: it is rolled back by what its log files say"),
    Known(rf"{STAT}logFiles", anything, anything,
          "0.15 names all logs of the slice, so that a commit grows with them; we name the file it wrote", both=the_last_of),
    Known(rf"{STAT}totalLogReadTimeMs", lambda v: v == ABSENT or v > 0, 0,
          "a compaction's time is not told, so that a task done again says the same; 0.15 has no such member"),
    Known(rf"{STAT}totalLogSizeCompacted", number, number,
          "sizes of log files, whose schemas have no documentation; 1.x counts what it has read of them"),
    Known(rf"{STAT}totalLogRecords", number, number, "0.15 does not count deletes", both=lambda real, ours: real < ours),
    Known(r"timeline \S+\.compaction\.requested extraMetadata", None, {}, "0.15 writes null for an empty map"),
    Known(r"timeline \S+\.compaction\.requested missingSchedulePartitions", ABSENT, [],
          "1.x's member; Avro's readers of 0.15 pass over it"),
    Known(rf"{OPERATION}metrics TOTAL_LOG_FILES_SIZE", number, number,
          "sizes of log files, whose schemas have no documentation"),
    Known(rf"{OPERATION}metrics TOTAL_IO_(WRITE_)?MB", number, 0.0,
          "an estimate by which Hudi's strategies leave operations out of a plan; here all are in it"),
    Known(r"timeline <M0>\.compaction\.requested operations \S+ \S+ .*", ABSENT, anything,
          "groups that have no entry yet are in the plan, and their tasks write nothing; Hudi leaves them out"),
)  # fmt: skip

PARTITIONS = (
    Known(r"metafile \S+ comment 1", "<a date>", ABSENT, "the first instants of a metadata table are no times"),
    Known(r"metafile \S+ commitTime", lambda v: v in ("<I0>", "<I3>"), lambda v: v.startswith("0000"),
          "1.x: written with a partition's first entry; here with the partition"),
)  # fmt: skip

RECORDS = (
    Known(rf"{HFILE}record .* ColumnStatsMetadata total(Uncompressed)?Size", number, number,
          "how many bytes of the base file a column takes: another library wrote it"),
)  # fmt: skip

PARTITION_STATS = (
    Known(r"(base|log) partition_stats/.* ColumnStatsMetadata isTightBound", True, False,
          "ranges of a partition are those of what a commit wrote, and readers join them with those before; Hudi computes "
          "them anew out of all files of the partition"),
    Known(r"(base|log) partition_stats/.* ColumnStatsMetadata (minValue|maxValue)", lambda v: v is not None, anything,
          "likewise: of what the commit wrote, and in base files of all that was ever written", both=wider),
    Known(r"(base|log) partition_stats/.* ColumnStatsMetadata (valueCount|nullCount)", number, number, "likewise"),
)  # fmt: skip

BY_PARTITION = (
    Known(r"log record_index/\.record-index-p\d-\S+<I\d>\.log\.1_<token> \(empty\) .*", anything, ABSENT,
          "an index by partition: the first entries of a group are in its first log file; Hudi puts an empty one before"),
    Known(r"timeline \S+\.commit stat record_index record-index-p\d\S+ (totalLogBlocks|totalLogFilesCompacted)",
          number, number, "likewise", both=lambda real, ours: real == ours + 1),
    Known(r"timeline \S+ operations record_index record-index-p\d\S+ metrics TOTAL_LOG_FILES", number, number, "likewise",
          both=lambda real, ours: real == ours + 1),
    Known(r"timeline \S+ operations record_index record-index-p\d\S+ deltaFilePaths", anything, anything, "likewise",
          both=lambda real, ours: real[1:] == ours),
)  # fmt: skip

KNOWN = (*SCHEMAS, *HFILES, *TIMELINE, *PARTITIONS, *RECORDS, *PARTITION_STATS, *BY_PARTITION)
