"""Bucketed tables: rows lie where a hash of their key says, which no table property tells.

File ids of a bucket index begin with the bucket's number in eight digits (BucketIdentifier.newBucketFileIdPrefix); the
consistent-hashing engine keeps its buckets in ``.hoodie/.bucket_index``. A random id that looks like a number under
10,000 has odds of 1 in 450,000.
"""

from __future__ import annotations

import re

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import META_FOLDER
from tagstream.table.timeline.timeline import Timeline

_BUCKET_ID = re.compile(r"0000\d{4}-")
_CONSISTENT = ".bucket_index"
_LOST = "rows would be put where nobody looks for them"
_BY_RING = (
    f"its buckets are those of consistent hashing (seen by {META_FOLDER}/{_CONSISTENT}), which only Hudi keeps, and "
    f"{_LOST}; write it with Hudi, or copy it into a table with another index"
)


def bucket_evidence(table: HoodieTable, timeline: Timeline) -> str | None:
    """What shows that the table is bucketed: a file id of its newest write, or the engine's folder; None: it is not."""
    if any(entry.name == _CONSISTENT and entry.is_dir for entry in table.storage.list(META_FOLDER)):
        return f"{META_FOLDER}/{_CONSISTENT}"
    found = _file_ids(table, timeline)
    return found[0] if found and all(_BUCKET_ID.match(file_id) for file_id in found) else None


def _file_ids(table: HoodieTable, timeline: Timeline) -> list[str]:
    """Those of the newest write that has files, or of all files where no write on the timeline has: of deletes alone."""
    for instant in reversed(timeline.completed_writes):
        names = [s.path.rpartition("/")[2] for s in timeline.metadata(table.storage, instant).all_stats() if s.path]
        found = [part.file_id for name in names if (part := parse_base_file_name(name) or parse_log_file_name(name))]
        if found:
            return found
    if not timeline.completed_writes:
        return []
    view = table.view(timeline)
    return [s.file_id for partition in view.partitions() for s in view.latest_merged_slices(partition)]


def check_bucketed(table: HoodieTable, *, wanted: bool) -> None:
    """UnsupportedTableError for a bucketed table where none is ``wanted``: a writer with a bucket index would not find rows
    put elsewhere. And for one with rows that is not bucketed where one is wanted.
    """
    timeline = table.timeline()
    evidence = bucket_evidence(table, timeline)
    if wanted and (_CONSISTENT in evidence if evidence is not None else _file_ids(table, timeline)):
        raise UnsupportedTableError(
            f"cannot write table {table.config.name} at {table.base_path} with hoodie.index.type=BUCKET: "
            + (
                _BY_RING
                if evidence
                else f"its file groups are no buckets, and {_LOST}; use the index it was written with"
            )
        )
    if evidence is not None and _CONSISTENT in evidence:
        raise UnsupportedTableError(f"cannot write table {table.config.name} at {table.base_path}: {_BY_RING}")
    if evidence is not None and not wanted:
        raise UnsupportedTableError(
            f"cannot write table {table.config.name} at {table.base_path}: it is bucketed (hoodie.index.type=BUCKET; "
            f"seen by {evidence}), and another index does not place rows by the bucket of their key, where its readers and "
            "writers look for them; give hoodie.index.type=BUCKET and its hoodie.bucket.index.num.buckets"
        )
