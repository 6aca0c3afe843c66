"""Where every record of a table with consistent hashing lies, and where it belongs: judged without the product's rings.

Hashes are those of the package xxhash, rings are read as plain JSON, base files by Arrow alone. Only blocks of log files
are found by the product's reader.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import xxhash

from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.storage.posix import PosixStorage

FIRST = "00000000000000"


@dataclass(frozen=True)
class Ring:
    """The newest ring of a partition whose clustering is completed: (value, prefix of the file id), by value."""

    instant: str
    seq_no: int
    nodes: tuple[tuple[int, str], ...]

    def prefix(self, key: str) -> str:
        """The prefix of the bucket of a key that is hashed as a whole."""
        code = xxhash.xxh32_intdigest(key.encode()) & 0x7FFFFFFF
        return self.nodes[bisect_left([value for value, _ in self.nodes], code) % len(self.nodes)][1]


def rings(table: Path) -> dict[str, Ring]:
    """The ring of each partition that has one, by the completed instants of the timeline."""
    folder = table / ".hoodie/.bucket_index/consistent_hashing_metadata"
    names = [path.name for place in ("", "timeline") for path in (table / ".hoodie" / place).glob("*commit")]
    completed = {match.group(1) for name in names if (match := re.match(r"(\d+)(_\d+)?\.\w*commit$", name))} | {FIRST}
    found: dict[str, Ring] = {}
    for path in sorted(folder.rglob("*.hashing_meta")):
        meta = json.loads(path.read_text())
        assert path.name == f"{meta['instant']}.hashing_meta" and all(n["tag"] == "NORMAL" for n in meta["nodes"])
        if meta["instant"] in completed:
            nodes = tuple((node["value"], node["fileIdPrefix"]) for node in meta["nodes"])
            assert list(nodes) == sorted(nodes)
            found[meta["partitionPath"]] = Ring(meta["instant"], meta["seqNo"], nodes)
    return found


def misplaced(table: Path) -> tuple[int, list[tuple[str, str]]]:
    """(number of records in files of the newest rings, those in another bucket than theirs: file and key).

    Files of older nodes are left out; every file has to be of a node of some ring.
    """
    count, wrong = 0, []
    every = {
        node["fileIdPrefix"]
        for path in (table / ".hoodie/.bucket_index").rglob("*.hashing_meta")
        for node in json.loads(path.read_text())["nodes"]
    }
    for partition, ring in rings(table).items():
        now = {prefix for _, prefix in ring.nodes}
        for path in sorted((table / partition).iterdir()):
            if path.is_dir() or path.suffix in (".crc", ".cdc", ".commit") or path.name == ".hoodie_partition_metadata":
                continue
            file_id = path.name.lstrip(".").split("_")[0]
            prefix, _, number = file_id.rpartition("-")
            assert number == "0" and prefix in every, path
            if prefix in now:
                keys = keys_of(table, path)
                count += len(keys)
                wrong += [(path.name, key) for key in keys if ring.prefix(key) != prefix]
    return count, wrong


def keys_of(table: Path, path: Path) -> list[str]:
    """The record keys of a base file, or of the data blocks of a log file."""
    if path.suffix == ".parquet":
        found: list[str] = pq.read_table(path, columns=["_hoodie_record_key"], partitioning=None)[0].to_pylist()
        return found
    blocks = scan_log_file(PosixStorage(str(table)), str(path.relative_to(table)))
    data = [block for block in blocks if block.type.name in ("AVRO_DATA", "PARQUET_DATA")]
    return [key for block in data for key in block.read_table()["_hoodie_record_key"].to_pylist()]
