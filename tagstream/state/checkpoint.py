"""The files of a checkpoint: its fixed choices, and the folder of the query that runs on it.

    C/tagstream/meta.json                     the fixed choices, written once and compared at every start
    C/tagstream/building.txt                  only while a command (rescale, index import) makes the checkpoint
    C/tagstream/runs/, root                   of the checkpoint, for all of its queries
    C/tagstream/changed_keys                  rows of changed keys, for records of later batches
    R/metadata, offsets, commits, state, ...  Spark's files: R is the checkpoint location that Spark gets
    R/tagstream/index, manifests, profiles, quarantine, schemas, takeover, begins.json

A command that makes a checkpoint writes all files to their final paths. It creates ``meta.json`` last, exclusively:
without this file there is no checkpoint. A command that was killed before leaves ``building.txt``. The next command
knows by this file what it may remove.

R is the folder of one query. For the first query it is C itself. A query that cannot continue is retired, and the next
query gets the folder ``C/tagstream/roots/<n>``. The register ``C/tagstream/root`` names the folder of the current
query. A query is retired by one write of this register, so after a kill the register names the old folder or the new
one. The files of a retired query are kept. ``why.txt`` in the new folder is for people.

A stream is named by its topic, by its folder, or by a given name. A folder has several spellings.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from tagstream.state.codec import FORMAT_VERSION
from tagstream.state.errors import StateError
from tagstream.state.layout import OrderingKind, balanced_labels
from tagstream.table.errors import StaleVersionError
from tagstream.table.storage.opening import open_storage, same_place
from tagstream.table.storage.storage import Storage, create


def same_stream(one: str, other: str) -> bool:
    """Whether two names are of one stream.

    A folder is named by its absolute path. Earlier versions kept the path as it was given, so a relative path matches
    each folder whose path ends with it. ``file:`` URLs and trailing slashes are allowed in paths. Links are followed. A
    single word may be a topic, so it matches only a folder in the working directory.
    """
    if one == other:
        return True
    first, second = _path_of_stream(one), _path_of_stream(other)
    if first.is_absolute() and second.is_absolute():
        return first == second or same_place(str(first), str(second))
    if first.is_absolute() == second.is_absolute() or ".." in (*first.parts, *second.parts):
        return False
    whole, end = (first, second) if first.is_absolute() else (second, first)
    if len(end.parts) < 2:
        return str(whole) == open_storage(str(end)).root
    return whole.parts[-len(end.parts) :] == end.parts


def _path_of_stream(name: str) -> PurePosixPath:
    return PurePosixPath(unquote(urlsplit(name).path) if name.startswith("file:") else name)


META_FILE = "tagstream/meta.json"
META_VERSION = 2  # 1 did not name the table
STATE_INDEX, TABLE_INDEX = "state", "table"

# Field -> the option that sets it; None: it is derived from the table and the source.
_OPTION = {
    "shuffle_partitions": "spark.sql.shuffle.partitions",
    "key_groups": "index.key.groups",
    "stream_id": "hoodie.datasource.write.streaming.checkpoint.identifier",
    "ordering": None,
    "global_index": "index.global.enabled",
    "index": "hoodie.index.type",
}
# The kinds of index, for the user who chooses one.
_INDEX_KINDS = {
    STATE_INDEX: "STATE (keys kept as the stream's state)",
    TABLE_INDEX: "one that looks keys up in the table (BLOOM, SIMPLE, BUCKET, ...)",
}
# Sizes whose default depends on the machine. Only a value that the user gave can conflict with the checkpoint.
_DEFAULTED = ("shuffle_partitions", "key_groups")


@dataclass(frozen=True)
class BoundTo:
    """The table of a checkpoint: its name, its base path, and the path of the checkpoint when they were recorded."""

    name: str
    path: str
    checkpoint: str


@dataclass(frozen=True)
class CheckpointMeta:
    """The fixed choices of a checkpoint. `labels[i]` is the label of the keys with `crc32(key) % key_groups == i`.

    `index`: where the locations of keys are: in Spark's state, or in the table (every pull-type index). A query of one
    kind cannot continue as the other. `stream_id` is empty while only an index is loaded: the first stream on the
    checkpoint sets it. `table` is None in a file of version 1, until the next start.
    """

    key_groups: int
    labels: tuple[int, ...]
    shuffle_partitions: int
    stream_id: str
    ordering: OrderingKind
    global_index: bool
    record_format: int = FORMAT_VERSION
    index: str = STATE_INDEX
    table: BoundTo | None = None


def read_meta(checkpoint: Storage) -> CheckpointMeta:
    """The checkpoint's fixed choices; StateError when they are missing, damaged or of another version."""
    path = checkpoint.where(META_FILE)
    try:
        doc: dict[str, Any] = json.loads(checkpoint.read(META_FILE))
        version = doc.pop("version", None)
        if version in (1, META_VERSION) and doc["record_format"] == FORMAT_VERSION:
            doc["labels"] = tuple(doc["labels"])
            if doc.get("table") is not None:
                doc["table"] = BoundTo(**doc["table"])
            return CheckpointMeta(**doc)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise StateError(
            f"{path} cannot be read ({e!r}); restore it from a copy, or start with a new checkpoint"
        ) from e
    raise StateError(
        f"{path} has version {version!r} and record format {doc['record_format']!r}, this program knows {META_VERSION} "
        f"and {FORMAT_VERSION}; run the program version that wrote the checkpoint"
    )


def new_meta(
    key_groups: int,
    shuffle_partitions: int,
    stream_id: str,
    ordering: OrderingKind,
    global_index: bool,
    index: str = STATE_INDEX,
    table: BoundTo | None = None,
) -> CheckpointMeta:
    """The choices of a new checkpoint, with labels for the key groups."""
    labels = balanced_labels(key_groups, shuffle_partitions)
    return CheckpointMeta(
        key_groups, labels, shuffle_partitions, stream_id, ordering, global_index, index=index, table=table
    )


def open_or_create_meta(
    checkpoint: Storage,
    *,
    shuffle_partitions: int,
    key_groups: int,
    stream_id: str,
    ordering: OrderingKind,
    global_index: bool,
    table_name: str,
    table_path: str,
    explicit: Collection[str] = (),
    index: str = STATE_INDEX,
    unused: bool = False,
) -> CheckpointMeta:
    """The checkpoint's fixed choices. They are made from the arguments when there are none yet.

    `explicit`: the options that the user gave. A number of key groups or shuffle partitions that is only this machine's
    default is replaced by the checkpoint's. All other choices must agree; StateError names the one that does not.
    An empty `stream_id` agrees with every other, and a checkpoint without one takes the first that is given.
    The table is recorded, not compared: the caller has checked whether this table may use the checkpoint.
    `unused`: no batch was run with the existing choices, so new ones may replace them.
    """
    path = checkpoint.where(META_FILE)
    table = BoundTo(table_name, table_path, checkpoint.root)
    wanted = new_meta(key_groups, shuffle_partitions, stream_id, ordering, global_index, index, table)
    if not checkpoint.exists(META_FILE):
        create(checkpoint, META_FILE, meta_bytes(wanted))  # when another start was first, its choices are kept
    found = read_meta(checkpoint)
    try:
        check_fixed(
            path,
            found,
            shuffle_partitions=shuffle_partitions,
            key_groups=key_groups,
            stream_id=stream_id,
            ordering=ordering,
            global_index=global_index,
            index=index,
            explicit=explicit,
        )
    except StateError:
        if not unused:
            raise
        checkpoint.replace(META_FILE, meta_bytes(wanted))  # the caller holds the table's lease
        return wanted
    stream_id = found.stream_id or stream_id  # the commits have this spelling of the folder, so it is kept
    now = replace(found, stream_id=stream_id, table=table)
    if now != found:  # the caller holds the table's lease: no other start does the same
        checkpoint.replace(META_FILE, meta_bytes(now))
    return now


def check_fixed(path: str, found: CheckpointMeta, *, explicit: Collection[str], **given: Any) -> None:
    """StateError unless each value in `given` is the one in the file at `path`; `explicit` as in `open_or_create_meta`."""
    for name, value in given.items():
        have, option = getattr(found, name), _OPTION[name]
        if name == "stream_id" and ("" in (value, have) or same_stream(value, have)):
            continue
        if have == value or (name in _DEFAULTED and option not in explicit):
            continue
        said, now = _INDEX_KINDS.get(have, repr(have)), _INDEX_KINDS.get(value, repr(value))
        raise StateError(f"{path} fixes {name} as {said}, but {option or 'the table'} is now {now}; {_way_out(name)}")


def _way_out(name: str) -> str:
    if name in _DEFAULTED:
        return (
            "set that value again, or make a checkpoint with the new value from this one: tagstream rescale "
            "(docs/operations/commands.md) keeps index and offsets"
        )
    if name == "stream_id":
        return (
            "this checkpoint belongs to another source. Give the new source its own checkpoint. If it is the same source "
            f"under another name, set the old name with --hoodie-conf {_OPTION[name]}"
        )
    return "set that value again, or start with a new checkpoint"


def meta_bytes(meta: CheckpointMeta) -> bytes:
    """The content of the file."""
    return json.dumps({"version": META_VERSION, **asdict(meta)}, indent=1).encode()


_OURS = "tagstream"
_MARK = "building.txt"


def begin_building(checkpoint: Storage, by: str) -> None:
    """Mark an empty folder before the first file is written; ``by``: the name of the command, for people."""
    checkpoint.replace(f"{_OURS}/{_MARK}", f"{by} is making this checkpoint, or was killed while it did.\n".encode())


def is_unfinished(checkpoint: Storage) -> bool:
    """Whether the folder has only files of a command that was killed. After a kill in its last step it is a checkpoint."""
    return checkpoint.exists(f"{_OURS}/{_MARK}") and not checkpoint.exists(META_FILE)


def finish_building(checkpoint: Storage, meta: CheckpointMeta) -> bool:
    """Make the folder a checkpoint; False when another process has made one here."""
    made = create(checkpoint, META_FILE, meta_bytes(meta))
    if made:
        checkpoint.delete(f"{_OURS}/{_MARK}")
    return made


def clear_unfinished(checkpoint: Storage) -> bool:
    """Remove the files of a command that was killed; False when there are none.

    The caller holds the table's lease, which the command also held, so the command no longer runs.
    """
    if not is_unfinished(checkpoint):
        return False
    for entry in checkpoint.list(_OURS):  # the mark goes last, so that it is still there after a kill in this loop
        path = f"{_OURS}/{entry.name}"
        if entry.is_dir:
            checkpoint.delete_tree(path)
        elif entry.name != _MARK:
            checkpoint.delete(path)
    checkpoint.delete_tree(_OURS)
    return True


INDEX, MANIFESTS, PROFILES = "tagstream/index", "tagstream/manifests", "tagstream/profiles"
QUARANTINE = "tagstream/quarantine"
TAKEOVER, BEGINS = "tagstream/takeover", "tagstream/begins.json"
SCHEMAS, CHANGED_KEYS = "tagstream/schemas", "tagstream/changed_keys"
QUERY_FOLDER_VERSION = 1
_REGISTER, _QUERY_FOLDERS = "tagstream/root", "tagstream/roots"


@dataclass(frozen=True)
class QueryFolder:
    """The folder of query ``number`` (0: the checkpoint itself). ``version``: of the register that names it."""

    number: int
    files: Storage
    version: str | None = None


def current_query_folder(checkpoint: Storage) -> QueryFolder:
    """The folder of the checkpoint's current query; StateError when the register cannot be used."""
    register = checkpoint.read_register(_REGISTER)
    if register is None:
        return QueryFolder(0, checkpoint)
    where = checkpoint.where(_REGISTER)
    try:
        doc: dict[str, Any] = json.loads(register.data)
        version, number = doc["version"], int(doc["root"])
    except (ValueError, KeyError, TypeError) as e:
        raise StateError(f"{where} is damaged ({e!r}); restore it from a copy, or start with a new checkpoint") from e
    if version != QUERY_FOLDER_VERSION:
        raise StateError(
            f"{where} has version {version!r}, this program knows {QUERY_FOLDER_VERSION}; run the program version "
            "that wrote it"
        )
    return QueryFolder(number, query_folder_at(checkpoint, number), register.version)


def query_folder_at(checkpoint: Storage, number: int) -> Storage:
    """The files of a query's folder by its number."""
    return checkpoint.below(f"{_QUERY_FOLDERS}/{number}") if number else checkpoint


def query_folder_numbers(checkpoint: Storage) -> list[int]:
    """The numbers of the query folders that exist or existed, in the order of their queries; 0: the checkpoint itself."""
    return [0, *sorted(int(name) for name in checkpoint.names(_QUERY_FOLDERS) if name.isdigit())]


def next_query_folder(checkpoint: Storage, query_folder: QueryFolder, why: str) -> QueryFolder:
    """Retire the query of ``query_folder`` and return a new, empty folder. StateError when ``query_folder`` is no
    longer the current one.

    ``why`` is a sentence without its full stop.
    """
    taken = [int(name) for name in checkpoint.names(_QUERY_FOLDERS) if name.isdigit()]
    number = max([query_folder.number, *taken]) + 1  # a folder that a killed run only began is skipped
    files = query_folder_at(checkpoint, number)
    files.replace(
        "why.txt", f"This query continues the one in {query_folder.files.root}, which was retired: {why}.\n".encode()
    )
    doc = {"version": QUERY_FOLDER_VERSION, "root": number, "why": why}
    try:
        version = checkpoint.swap(_REGISTER, json.dumps(doc, indent=1).encode(), query_folder.version)
    except StaleVersionError as e:
        raise StateError(
            f"another process has retired the query in {query_folder.files.root} meanwhile, so this one stops; start "
            "the job again"
        ) from e
    return QueryFolder(number, files, version)
