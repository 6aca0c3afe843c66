"""Where a table of ours may differ from one that real Hudi wrote from the same rows, and why. Nothing else may.

``0.15`` stands for Hudi 0.15.0, whose own table version 6 is; ``1.x`` for Hudi 1.2.0 told to write version 6.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ABSENT = "(absent)"
EVENT_TIME = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
COMMIT_TIME = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
MERGER = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
Expected = Any | Callable[[Any], bool]


@dataclass(frozen=True, eq=False)
class Known:
    """A difference: ``field`` is a regular expression of whole field names, ``real`` and ``ours`` the values that may
    stand there (a value or a predicate; ``both`` a predicate of the pair), ``why`` the reason."""

    field: str
    real: Expected
    ours: Expected
    why: str
    both: Callable[[Any, Any], bool] | None = None

    def covers(self, field: str, real: Any, ours: Any) -> bool:
        """True when this explains the difference."""
        if not re.fullmatch(self.field, field) or not _is(self.real, real) or not _is(self.ours, ours):
            return False
        return self.both is None or self.both(real, ours)


def _is(expected: Expected, value: Any) -> bool:
    return bool(expected(value)) if callable(expected) else bool(expected == value)


def anything(_: Any) -> bool:
    """For the side whose value does not matter."""
    return True


def list_of_paths(value: Any) -> bool:
    """Column paths of a Parquet file."""
    return isinstance(value, list)


def same_but_for_lists(real: list[str], ours: list[str]) -> bool:
    """Column paths that are equal once the two levels of the JVM's lists are written as three."""
    return ours == [re.sub(r"(?<=\.)array\b", "list.element", path) for path in real]


def the_last_of(real: list[str], ours: list[str]) -> bool:
    """One of the log files that the other names."""
    return len(ours) == 1 and ours[0] == real[-1]


def one_filter_in_the_other(real: str, ours: str) -> bool:
    """Bloom filters in Hudi's text form: of one shape, and ours has every bit of the other.

    The form is Base64 of a head of 17 bytes, the number of keys (int32), then rows of bits that begin with a head of their
    own (``InternalDynamicBloomFilter.write``).
    """
    their_bytes, our_bytes = base64.b64decode(real), base64.b64decode(ours)
    more_keys = int.from_bytes(our_bytes[17:21], "big") >= int.from_bytes(their_bytes[17:21], "big")
    same_form = len(their_bytes) == len(our_bytes) and their_bytes[:17] == our_bytes[:17]
    every_bit = all(theirs & ~mine == 0 for theirs, mine in zip(their_bytes[21:], our_bytes[21:], strict=False))
    return same_form and more_keys and every_bit


PROPERTIES = (
    Known(r"properties hoodie\.table\.metadata\.partitions(\.inflight)?", anything, ABSENT,
          "the metadata table is not kept; a table without the property is listed"),
    Known(r"properties hoodie\.table\.index\.defs\.path", ".hoodie/.index_defs/index.json", ABSENT,
          "1.x: part of its metadata table"),
    Known(r"properties hoodie\.table\.keygenerator\.type", anything, ABSENT,
          "1.x: its name for the key generator; version 6 says the class, which 1.x reads too"),
    Known(r"properties hoodie\.table\.keygenerator\.class", ABSENT, r"org.apache.hudi.keygen.SimpleKeyGenerator",
          "version 6 names the class where 1.x names a type"),
    Known(r"properties hoodie\.table\.keygenerator\.class", ABSENT, r"org.apache.hudi.keygen.ComplexKeyGenerator",
          "version 6 names the class where 1.x names a type"),
    Known(r"properties hoodie\.table\.ordering\.fields", "ver", ABSENT,
          "1.x: its name for the ordering field"),
    Known(r"properties hoodie\.table\.precombine\.field", ABSENT, "ver",
          "version 6's name for the ordering field, which 1.x reads too; 0.15 knows no other"),
    Known(r"properties hoodie\.record\.merge\.strategy\.id", MERGER, ABSENT,
          "1.x: its name for the merge strategy"),
    Known(r"properties hoodie\.compaction\.record\.merger\.strategy", ABSENT, MERGER,
          "version 6's name for it; 0.15 writes it for merge-on-read only"),
    Known(r"properties hoodie\.compaction\.payload\.class", ABSENT, COMMIT_TIME,
          "0.15 writes its default for merge-on-read only; said openly, any version reads the same"),
    Known(r"properties hoodie\.(timeline\.path|timeline\.history\.path|table\.format)", anything, ABSENT,
          "1.x: folders and format of version 8 and 9, which mean nothing in version 6"),
    Known(r"properties hoodie\.archivelog\.folder", "history", "archived",
          "1.x names its new folder; archived is version 6's own, and is read from this property"),
    Known(r"properties hoodie\.table\.partition_extractor_class", anything, ABSENT,
          "1.x: a hint for its Hive sync"),
    Known(r"properties hoodie\.database\.name", ABSENT, "",
          "0.15 writes an empty name, 1.x none: both mean no database, also to the checksum"),
)  # fmt: skip

TIMELINE = (
    Known(r"timeline <I\d+>\.(\w+\.)?inflight extraMetadata tagstream\.data\.files", ABSENT, "staged",
          "tells our own rollback that files were published by the driver only; Hudi reads no extra metadata there"),
    Known(r"timeline <I\d+>\.deltacommit stat .* logFiles", anything, anything,
          "version 6 names all logs of the slice, so that a commit grows with them; we name the file it wrote, as version 8 "
          "does: only change data capture reads more, and tables with it get all", both=the_last_of),
    Known(r"timeline <I\d+>\.(deltacommit\.)?inflight partitionToWriteStats",
          lambda v: isinstance(v, dict) and bool(v), {},
          "the workload profile, planned per partition before the write; only a rollback by listing reads it, and "
          "ours goes by markers"),
    Known(r"timeline <I\d+>\.(delta)?commit stat .* (numUpdates|totalValidLogBlocks|totalLogBlocksSize"
          r"|totalLogBlocksScanTimeMs)", 0, ABSENT, "1.x: counters of compactions; unknown members are ignored by 0.15"),
    Known(r"timeline <I\d+>\.(delta)?commit stat .* prevBaseFile",
          lambda v: v is None or bool(re.fullmatch(r"<G\d+>_[\d-]+_<I\d+>\.parquet", v)), ABSENT,
          "1.x: the base file that was merged, which file id and prevCommit tell as well"),
    Known(r"timeline <I\d+>\.(delta)?commit stat .* totalLogReadTimeMs", ABSENT, 0,
          "1.x has it, 0.15 does not: a counter of compactions, 0 here"),
    Known(r"timeline <I\d+>\.deltacommit stat .* recordsStats", ABSENT, {"val": None},
          "0.15 has it, 1.x does not: column ranges of a log file, none here"),
)  # fmt: skip

PARQUET = (
    Known(r"(base|log) .* created_by", "parquet-mr", "parquet-cpp-arrow", "the library that wrote the file"),
    Known(r"(base|log) .* column \d+ \w+ encodings", anything,
          lambda v: "RLE" in v and set(v) <= {"PLAIN", "PLAIN_DICTIONARY", "RLE"},
          "the library chooses; these are all of Parquet 1.0, and BIT_PACKED is only the JVM's name for no levels"),
    Known(r"base .* footer tagstream\.bloom\.keys", ABSENT, lambda v: set(json.loads(v)) == {"added", "gone"},
          "how many keys the bloom filter has, and how many of them are gone: the next file continues the filter"),
    Known(r"base .* footer org\.apache\.hudi\.bloomfilter", anything, anything,
          "a merge continues the filter of the file before, so that a few keys which are gone keep their bits",
          both=one_filter_in_the_other),
    Known(r"base .* footer tagstream\.float\.statistics", ABSENT, lambda v: isinstance(json.loads(v), dict),
          "nulls of columns of floats: those with not-a-number have no statistics, as of parquet-mr, but for their nulls"),
    Known(r"(base|log) .* columns", list_of_paths, list_of_paths,
          "lists: three levels, as the Parquet standard says and Hudi's row writer does; its Avro writer uses two",
          both=same_but_for_lists),
    Known(r"(base|log) .* column \d+ \w+ levels", (2, 1), (3, 1), "the third level of lists"),
    Known(r"(base|log) .* column \d+ \w+ levels", (3, 1), (4, 1), "the third level of lists, in a struct"),
)  # fmt: skip

AVRO_LOGS = (
    Known(r"log .* blocks", lambda v: "AVRO_DATA" in v, lambda v: "PARQUET_DATA" in v and "AVRO_DATA" not in v,
          "data blocks are Parquet (hoodie.logfile.data.block.format=parquet), written in columns; the default is Avro"),
    Known(r"log .* block \d+ (created_by|format|row groups|columns|footer .*|column .*)", ABSENT, anything,
          "what the Parquet file in a block says of itself; an Avro block has no such thing"),
)  # fmt: skip

LAYOUT_2 = (
    Known(r"log .* block \d+ header (RECORD_POSITIONS|BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS)", anything, ABSENT,
          "where the rows are in the base file: a help for readers, which merge by key without it; the state index does not "
          "know it"),
)  # fmt: skip

KNOWN = (*PROPERTIES, *TIMELINE, *PARQUET, *LAYOUT_2)
