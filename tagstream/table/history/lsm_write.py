"""Write the history of timeline layout 2: add a batch of actions, merge files level by level, remove old files.

A batch is archived in these steps, each of which can be interrupted and repeated:

1. write the Parquet file, under a name made from the batch (it replaces a file that no manifest names);
2. write ``manifest_<N+1>``: the old files and the new one (it replaces a manifest that ``_version_`` does not name);
3. write ``_version_`` = N+1. Now readers see the new file;
4. the caller removes the actions' files from the active timeline. Until then the actions are in both places.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.table.history.action_files import ArchivedAction
from tagstream.table.history.lsm import (
    HISTORY_SCHEMA,
    History,
    HistoryFile,
    Manifest,
    file_name,
    is_history_file,
    manifest_name,
    manifest_versions,
    read_manifest,
    read_version,
    write_manifest,
)
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import avro_schema

FILES_A_LEVEL = 10  # hoodie.timeline.compaction.batch.size
TARGET_BYTES = 1000 << 20  # hoodie.timeline.compaction.target.file.max.bytes
KEPT_MANIFESTS = 3  # hoodie.timeline.manifest.retained.versions
# Hudi's readers get the rows' schema from the footer. Arrow's own schema entry is not written.
_FOOTER = {"parquet.avro.schema": json.dumps(avro_schema("HoodieLSMTimelineInstant")), "writer.model.name": "avro"}


def write_batch(storage: Storage, folder: str, actions: Collection[ArchivedAction]) -> Manifest:
    """Archive completed actions as one file of level 0, without those that the history has already."""
    ordered = sorted(actions, key=lambda action: action.key)
    manifest = read_manifest(storage, folder)
    if ordered:
        ordered = _new_ones(History(storage, folder, [manifest]), ordered)
    if not ordered:
        return manifest
    name = _free_name(manifest, ordered[0].time, ordered[-1].time)
    size = _write_file(storage, f"{folder}/{name}", [rows_of(ordered)])
    added = Manifest(manifest.version + 1, (*manifest.files, HistoryFile(name, size)))
    write_manifest(storage, folder, added)
    return added


def rows_of(actions: Sequence[ArchivedAction]) -> pa.Table:
    """Actions as rows of the history."""
    columns = [
        [action.time for action in actions], [action.completion_time for action in actions],
        [action.action for action in actions], [action.metadata for action in actions],
        [action.plan for action in actions], [1] * len(actions),
    ]  # fmt: skip
    arrays = [pa.array(values, field.type) for values, field in zip(columns, HISTORY_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=HISTORY_SCHEMA)


def merge_levels(
    storage: Storage, folder: str, files_a_level: int = FILES_A_LEVEL, target_bytes: int = TARGET_BYTES
) -> int:
    """Merge the oldest files of each level that has at least ``files_a_level`` into one file of the next level.

    Returns the number of merged levels. A file larger than ``target_bytes`` is not merged. Merged files are kept until
    :func:`remove_old`, because a reader may have an older manifest that names them.
    """
    merged, level = 0, 0
    manifest = read_manifest(storage, folder)
    while (sources := _candidates(manifest, level, files_a_level, target_bytes)) is not None:
        target = file_name(min(f.range[0] for f in sources), max(f.range[1] for f in sources), level + 1)
        history = History(storage, folder, [manifest])
        # Ranges rarely overlap. If they do not, the files are copied one after another.
        apart = all(a.range[1] < b.range[0] for a, b in pairwise(sources))
        tables: Iterable[pa.Table]
        tables = (history.load(f) for f in sources)
        if not apart:
            tables = [pa.concat_tables(list(tables)).sort_by("instantTime")]
        size = _write_file(storage, f"{folder}/{target}", tables)
        kept = [file for file in manifest.files if file not in sources]
        manifest = Manifest(manifest.version + 1, (*kept, HistoryFile(target, size)))
        write_manifest(storage, folder, manifest)
        merged, level = merged + 1, level + 1
    return merged


def remove_old(storage: Storage, folder: str, merged_levels: int = 0, kept: int = KEPT_MANIFESTS) -> list[str]:
    """Remove all but the newest ``kept`` manifests, then the files that these do not name; returns the removed names.

    ``merged_levels``: number of levels that were just merged, each with a new manifest; as many more manifests are kept.
    """
    versions = manifest_versions(storage, folder)
    newest = read_manifest(storage, folder).version
    versions = [version for version in versions if version <= newest]
    keep, old = versions[-(kept + merged_levels) :], versions[: -(kept + merged_levels)]
    if not old:
        return []
    named = frozenset[str]().union(*(read_version(storage, folder, version).names for version in keep))
    manifests = [manifest_name(version) for version in old]
    storage.delete_many(f"{folder}/{name}" for name in manifests)
    files = [name for name in storage.names(folder) if is_history_file(name) and name not in named]
    storage.delete_many(f"{folder}/{name}" for name in files)
    return manifests + files


def _new_ones(history: History, actions: list[ArchivedAction]) -> list[ArchivedAction]:
    there = history.read(["instantTime", "action"], actions[0].time, actions[-1].time)
    known = set(zip(there["instantTime"].to_pylist(), there["action"].to_pylist(), strict=True))
    return [action for action in actions if action.key not in known]


def _free_name(manifest: Manifest, first: str, last: str) -> str:
    """A free name, usually of level 0. If another batch with the same range has it, that of the first free level."""
    level = 0
    while (name := file_name(first, last, level)) in manifest.names:
        level += 1
    return name


def _candidates(manifest: Manifest, level: int, files: int, target_bytes: int) -> list[HistoryFile] | None:
    """The oldest files of a level to merge next; None when there are too few, or when they are too large."""
    there = sorted((file for file in manifest.files if file.level == level), key=lambda file: file.range)
    if len(there) < files:
        return None
    chosen: list[HistoryFile] = []
    total = 0
    for file in there:
        if len(chosen) == files or (total + file.size > target_bytes and len(chosen) > 1):
            break
        if total + file.size > target_bytes:
            chosen, total = [], 0  # the chosen file is large enough alone
            if file.size > target_bytes:
                continue
        chosen.append(file)
        total += file.size
    return chosen if len(chosen) > 1 else None


def _write_file(storage: Storage, rel: str, tables: Iterable[pa.Table]) -> int:
    with storage.open_output(rel) as sink, pq.ParquetWriter(
        sink, HISTORY_SCHEMA, compression="gzip", store_schema=False
    ) as writer:  # fmt: skip
        for rows in tables:
            writer.write_table(rows)
        writer.add_key_value_metadata(_FOOTER)
    return storage.size(rel)
