"""Everything a table's files say, as one flat dict of named fields, in a form that two tables can be compared in.

Instants, file ids, sizes and moments differ between two tables by their nature. They are put in words: ``<I0>`` is the
table's first instant, ``<G2>`` its third file group, ``<its size>`` a number that is the size of the file spoken of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.table.file_group.log_file import LogBlock, scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import PARTITION_METAFILE, parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import parse
from tagstream.table.schema.conform import conform
from tagstream.table.schema.schema import COMMIT_SEQNO, META_COLUMNS, avro_to_arrow, with_meta
from tagstream.table.timeline.avro_timeline import MAGIC, read_record
from tagstream.table.timeline.instant import Instant, parse_instant
from tests.support.stored import stored

Fields = dict[str, Any]
Named = Iterator[tuple[str, Any]]
DATE = re.compile(r"#\w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}")


class Words:
    """Puts instants and file ids of one table in words."""

    def __init__(self, instants: Iterable[str], file_ids: Iterable[str]) -> None:
        self.of = {time: f"<I{n}>" for n, time in enumerate(instants)}
        self.of |= {file_id: f"<G{n}>" for n, file_id in enumerate(file_ids)}
        self.also({})

    def also(self, more: Mapping[str, str]) -> None:
        """Further words by what they stand for."""
        self.of |= more
        self._any = re.compile("|".join(sorted(map(re.escape, self.of), key=len, reverse=True)))

    def __call__(self, value: Any) -> Any:
        """The value with every known instant and file id in it replaced, lists and dicts included."""
        if isinstance(value, str):
            return self._any.sub(lambda found: self.of[found.group()], value)
        if isinstance(value, list | tuple):
            return type(value)(self(each) for each in value)
        if isinstance(value, dict):
            return {self(key): self(each) for key, each in value.items()}
        return value


def files_of(root: Path) -> Iterator[Path]:
    """A table's files but those below ``.hoodie`` and Hadoop's checksums, by their names."""
    for path in sorted(root.rglob("*")):
        if path.relative_to(root).parts[0] != ".hoodie" and path.is_file() and path.suffix != ".crc":
            yield path


def fields_of(table: HoodieTable, instants: Iterable[str], file_ids: Iterable[str], user_avro: str) -> Fields:
    """The fields of the table and of what the given instants wrote."""
    times = list(instants)
    words = Words(times, file_ids)
    root = Path(table.base_path)
    found = dict(properties_fields(root))
    found |= timeline_fields(root, times, words)
    for path in files_of(root):
        where = words(str(path.relative_to(root)))
        if path.name == PARTITION_METAFILE:
            found |= metafile_fields(path, where, words)
        elif base := parse_base_file_name(path.name):
            if base.instant <= times[-1]:  # a file of a later step is not compared
                found |= _parquet(path, f"base {where}", words, user_avro)
        elif log := parse_log_file_name(path.name):
            if table.config.names_logs_by_commit and log.base_instant not in times:
                continue
            found |= _log(path, f"log {where}", words, user_avro)
        else:
            found[f"file {where}"] = "unknown"
    return found


def properties_fields(root: Path) -> Named:
    """The table's properties."""
    path = root / ".hoodie" / "hoodie.properties"
    for key, value in parse(path.read_bytes()).items():
        yield f"properties {key}", ",".join(sorted(value.split(","))) if key.endswith(".partitions") else value


def timeline_fields(root: Path, times: list[str] | None, words: Words) -> Named:
    """The files of a timeline and what is in them; ``times``: of these instants only."""
    folder = root / ".hoodie" / "timeline"
    for path in sorted((folder if folder.exists() else root / ".hoodie").iterdir()):
        instant = parse_instant(path.name)
        if instant is None or (times and instant.time not in times) or path.suffix == ".crc":
            continue
        if instant.completion_time is not None:
            assert instant.completion_time > instant.time
            name = f"timeline {words(path.name.replace(instant.completion_time, '<later>'))}"
        else:
            name = f"timeline {words(path.name)}"
        data = path.read_bytes()
        yield name, "a file"
        if not data:
            yield f"{name} content", "empty"
        elif data.startswith(MAGIC):
            record = read_record(data, str(path))
            yield f"{name} content", "Avro"
            if "partitionToWriteStats" in record:
                yield from _commit(root, record, instant, name, words)
            else:
                yield from flat(words(record), name)
        else:
            yield f"{name} content", "JSON"
            yield from _commit(root, json.loads(data), instant, name, words)


def _commit(root: Path, content: Mapping[str, Any], instant: Instant, name: str, words: Words) -> Named:
    for member, value in content.items():
        if member == "partitionToWriteStats" and instant.is_completed:
            for partition, stats in value.items():
                for stat in stats:
                    yield from _stat(root, stat, f"{name} stat {partition} {words(stat['fileId'])}", words)
        elif member == "partitionToWriteStats":
            yield f"{name} {member}", {partition: len(stats) for partition, stats in value.items()}
        elif member == "extraMetadata":
            yield from ((f"{name} {member} {key}", text) for key, text in value.items())
        else:
            yield f"{name} {member}", value


def _stat(root: Path, stat: Mapping[str, Any], name: str, words: Words) -> Named:
    file = root / stat["path"]
    size = file.stat().st_size if file.exists() else None  # it may be cleaned since
    for member, value in stat.items():
        if member in ("fileSizeInBytes", "totalWriteBytes"):
            yield f"{name} {member}", "<its size>" if value == size else value
        elif member == "runtimeStats":
            yield f"{name} {member}", {key: type(ms).__name__ for key, ms in (value or {}).items()}
        elif member == "logFiles":
            yield f"{name} {member}", sorted(words(value or []))
        else:
            yield f"{name} {member}", words(value)


def flat(value: Any, name: str) -> Named:
    """The members of records in records, each by its path."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from flat(each, f"{name} {key}")
    elif isinstance(value, list) and value and isinstance(value[0], dict) and "fileId" in value[0]:
        for each in value:
            yield from flat(each, f"{name} {each['partitionPath']} {each['fileId']}")
    else:
        yield name, value


def metafile_fields(path: Path, where: str, words: Words) -> Named:
    """What a partition's metafile says."""
    text = path.read_text()
    for n, line in enumerate(line for line in text.splitlines() if line.startswith("#")):
        yield f"metafile {where} comment {n}", "<a date>" if DATE.fullmatch(line) else line
    for key, value in parse(text.encode()).items():
        yield f"metafile {where} {key}", words(value)


def _parquet(path: Path | pa.Buffer, name: str, words: Words, user_avro: str) -> Named:
    # Not through a data set: the folder's name=value would become a column.
    with pq.ParquetFile(path if isinstance(path, Path) else pa.BufferReader(path)) as file:
        metadata = file.metadata
        rows = conform(file.read(), with_meta(avro_to_arrow(user_avro)), name)
    yield f"{name} created_by", metadata.created_by.split(" version ")[0].split(" ")[0]
    yield f"{name} format", metadata.format_version
    yield f"{name} row groups", metadata.num_row_groups
    for key, value in (metadata.metadata or {}).items():
        yield f"{name} footer {key.decode()}", value.decode()
    yield f"{name} columns", [metadata.schema.column(i).path for i in range(len(metadata.schema))]
    for i in range(len(metadata.schema)):
        column, chunk = metadata.schema.column(i), metadata.row_group(0).column(i) if metadata.num_row_groups else None
        top = column.path.split(".")[0]
        yield f"{name} column {i} {top} type", (column.physical_type, str(column.logical_type), column.length)
        yield f"{name} column {i} {top} converted", column.converted_type
        yield f"{name} column {i} {top} levels", (column.max_definition_level, column.max_repetition_level)
        if chunk is not None:
            yield f"{name} column {i} {top} compression", chunk.compression
            yield f"{name} column {i} {top} values", chunk.num_values
            yield f"{name} column {i} {top} encodings", sorted(chunk.encodings)
            yield from _statistics(chunk, f"{name} column {i} {top}", words)
    yield from _rows(rows, name, words)


def _statistics(chunk: Any, name: str, words: Words) -> Named:
    found = chunk.statistics
    yield f"{name} statistics", None if found is None else (found.has_null_count, found.has_min_max)
    if found is not None:
        yield f"{name} nulls", found.null_count
        low, high = (words(found.min), words(found.max)) if found.has_min_max else (None, None)
        yield f"{name} range", (type(low), type(high)) if "seqno" in name else (low, high)


def _rows(rows: pa.Table, name: str, words: Words) -> Named:
    yield f"{name} rows", rows.num_rows
    for column in rows.column_names:
        values = rows.column(column).to_pylist()
        if column == COMMIT_SEQNO:
            # <instant>_<task>_<n>: what n counts from is the writer's own
            parts = [value.split("_") for value in values]
            yield f"{name} {column} form", [(words(i), int(task) >= 0, int(n) >= 0) for i, task, n in parts]
            yield f"{name} {column} distinct", len(set(values)) == len(values)
        else:
            yield f"{name} {column}", words(values) if column in META_COLUMNS else values


def _log(path: Path, name: str, words: Words, user_avro: str) -> Named:
    blocks = list(scan_log_file(*stored(path)))
    yield f"{name} blocks", [block.type.name for block in blocks]
    for n, block in enumerate(blocks):
        label = f"{name} block {n}"
        yield from ((f"{label} header {key}", words(value)) for key, value in block.header.items())
        yield from _block(block, label, words, user_avro)


def _block(block: LogBlock, label: str, words: Words, user_avro: str) -> Named:
    if block.type is BlockType.DELETE:
        yield f"{label} content", block.content()
        deletes = block.deletes()
        yield f"{label} keys", deletes.keys.to_pylist()
        yield f"{label} partitions", deletes.partition_paths.to_pylist()
    elif block.type is BlockType.PARQUET_DATA:
        yield from _parquet(pa.py_buffer(block.content()), label, words, user_avro)
    else:
        yield from _rows(block.read_table(with_meta(avro_to_arrow(user_avro))), label, words)
