"""Names of files, instants and partitions. They are pure functions, so that a replay makes the same names.

``.hoodie_partition_metadata`` is the file that makes a folder a partition for readers that list folders.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import META_FOLDER, Storage, at_once

# The namespace of this writer's name-based UUIDs. Never change it: it would change every file id.
_FILE_ID_NAMESPACE = uuid.UUID("6f6fbb4a-2f0e-5a35-9d0f-7a4c6e1b8f21")

# Hudi 1.2 parses file ids as [a-zA-Z0-9-]+ ; older engines allow more, so reading accepts all up to the first "_".
_BASE_FILE = re.compile(r"^([^._/][^_/]*)_([^_/]+)_(\d+)\.([a-zA-Z0-9]+)$")
_LOG_FILE = re.compile(r"^\.([^._/]+)_([^./]*)\.(log|archive)\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?$")


@dataclass(frozen=True)
class BaseFileName:
    """``<file id>_<write token>_<instant>.<extension>``."""

    file_id: str
    write_token: str
    instant: str
    extension: str


@dataclass(frozen=True)
class LogFileName:
    """``.<file id>_<time>.log.<version>_<write token>[.cdc]``.

    ``base_instant`` is the base instant of the slice in table version 6, the delta commit's own instant from 8 on.
    """

    file_id: str
    base_instant: str
    version: int
    write_token: str | None
    is_cdc: bool


def new_file_id(*parts: str | int) -> str:
    """File id of a new file group: a UUIDv5 of the parts and ``-0``.

    Every part is written with its length, so ("ab", "c") and ("a", "bc") differ.
    """
    texts = [str(part) for part in parts]
    name = "".join(f"{len(text)}:{text}" for text in texts)
    return f"{uuid.uuid5(_FILE_ID_NAMESPACE, name)}-0"


def write_token(partition: int, stage: int, attempt: int) -> str:
    """Write token: three numbers that differ between the attempts (and runs) that may write the same file."""
    if min(partition, stage, attempt) < 0:
        raise ValueError(f"a write token has no negative parts: {partition}, {stage}, {attempt}")
    return f"{partition}-{stage}-{attempt}"


def base_file_name(file_id: str, token: str, instant: str) -> str:
    """Name of a Parquet base file."""
    return f"{file_id}_{token}_{instant}.parquet"


def log_file_name(file_id: str, base_instant: str, version: int, token: str) -> str:
    """Name of a log file; versions count from 1 for each (file id, base instant)."""
    if version < 1:
        raise ValueError(f"log file versions begin at 1: {version}")
    return f".{file_id}_{base_instant}.log.{version}_{token}"


def parse_base_file_name(name: str) -> BaseFileName | None:
    """Parts of a base file's name; None for other files."""
    match = _BASE_FILE.match(name)
    return BaseFileName(*match.groups()) if match else None


def parse_log_file_name(name: str) -> LogFileName | None:
    """Parts of a log file's name; None for other files. Old tables have no write token."""
    match = _LOG_FILE.match(name)
    if match is None or match.group(3) != "log":
        return None
    file_id, base_instant, _, version, token, cdc = match.groups()
    return LogFileName(file_id, base_instant, int(version), token, cdc is not None)


def file_id_of(name: str) -> str | None:
    """File id of a data file by its name; None for other files."""
    parsed = parse_base_file_name(name) or parse_log_file_name(name)
    return parsed.file_id if parsed is not None else None


def has_group(names: Iterable[str], file_ids: Collection[str]) -> bool:
    """Whether one of these names is a data file of these file groups."""
    return any(file_id_of(name) in file_ids for name in names)


def seqnos(instant: str, task_partition: int, start: int, count: int) -> pa.Array:
    """``_hoodie_commit_seqno`` of ``count`` rows: ``<instant>_<task partition>_<row counter from start>``."""
    counters = pa.array(np.arange(start, start + count, dtype=np.int64)).cast(pa.string())
    return pc.binary_join_element_wise(f"{instant}_{task_partition}", counters, "_")


def instant_from_ms(ms: int, utc: bool) -> str:
    """Instant time of milliseconds since 1970: 17 digits, in UTC or in this host's zone (hoodie.table.timeline.timezone)."""
    seconds, millis = divmod(ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC if utc else None)
    return f"{moment:%Y%m%d%H%M%S}{millis:03d}"


def next_instant(ms: int, newest: str | None, utc: bool = False) -> str:
    """The instant at ``ms``, or one millisecond after ``newest`` where the clock is not past it.

    Instants only grow: a clock that was set back, or an hour repeated by summer time, must not reuse one.
    """
    wanted = instant_from_ms(ms, utc)
    if newest is None or wanted > _to_millis(newest):
        return wanted
    return _after(_to_millis(newest))


def _to_millis(instant: str) -> str:
    """The instant with 17 digits. A 14-digit instant of an old table is the last millisecond of its second."""
    if not instant.isdigit() or len(instant) < 14:
        raise CorruptFileError(f"{instant!r} is not an instant time (14 or 17 digits); check the names in .hoodie")
    return (instant + "999")[:17]


def _after(instant: str) -> str:
    moment = datetime.strptime(instant[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(instant[14:17]) + 1)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def bucket_of(file_id: str) -> int | None:
    """The bucket number in a file id; None for a file group that is not of a bucket index."""
    match = re.match(r"(\d{8})-", file_id)
    return int(match.group(1)) if match else None


PARTITION_METAFILE = ".hoodie_partition_metadata"
METAFILE_NAMES = frozenset({PARTITION_METAFILE, f"{PARTITION_METAFILE}.parquet", f"{PARTITION_METAFILE}.orc"})


def ensure_partition(storage: Storage, partition_path: str, instant: str) -> None:
    """Create the partition's folder and metafile unless they exist; several tasks may do so at once."""
    rel = join(partition_path, PARTITION_METAFILE)
    if storage.exists(rel):
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    text = f"#partition metadata\n{_comment(instant)}commitTime={instant}\npartitionDepth={depth}\n"
    try:
        storage.write_new(rel, text.encode())
    except FileExistsError:
        return


def _comment(instant: str) -> str:
    """When the partition was made, as a comment of Java's properties. First instants of a metadata table are not times."""
    if instant.startswith("0000"):
        return ""
    at = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return f"#{at.strftime('%a %b %d %H:%M:%S UTC %Y')}\n"


def list_partitions(storage: Storage) -> list[str]:
    """The partition paths of the table, sorted: every folder below the base path with a metafile."""
    found: list[str] = []
    folders = [""]
    while folders:  # level by level
        listed = at_once(storage, *(partial(storage.list, folder) for folder in folders))
        below: list[str] = []
        for folder, entries in zip(folders, listed, strict=True):
            if any(not e.is_dir and e.name in METAFILE_NAMES for e in entries):
                found.append(folder)
            below.extend(join(folder, e.name) for e in entries if e.is_dir and e.name != META_FOLDER)
        folders = below
    return sorted(found)


def split(path: str) -> tuple[str, str]:
    """(partition path, name) of a file, from its path relative to the base path."""
    partition_path, _, name = path.rpartition("/")
    return partition_path, name


def join(partition_path: str, name: str) -> str:
    """A file's path relative to the base path; the partition of an unpartitioned table is the empty text."""
    return f"{partition_path}/{name}" if partition_path else name
