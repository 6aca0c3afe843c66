"""``.hoodie_partition_metadata``: the file that makes a folder a partition for readers that list."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from tagstream.table.storage.at_once import at_once
from tagstream.table.storage.storage import META_FOLDER, Storage

PARTITION_METAFILE = ".hoodie_partition_metadata"
METAFILE_NAMES = frozenset({PARTITION_METAFILE, f"{PARTITION_METAFILE}.parquet", f"{PARTITION_METAFILE}.orc"})


def ensure_partition(storage: Storage, partition_path: str, instant: str) -> None:
    """Create the partition's folder and metafile unless there; several tasks may do so at once."""
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
    """When the partition was made, as Java's properties have it; the first instants of a metadata table are no times."""
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
    """The partition path and the name of a file, of its path relative to the base path."""
    partition_path, _, name = path.rpartition("/")
    return partition_path, name


def join(partition_path: str, name: str) -> str:
    """A file's path relative to the base path; the partition of an unpartitioned table is the empty text."""
    return f"{partition_path}/{name}" if partition_path else name
