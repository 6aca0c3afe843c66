"""The checkpoint's own files: what it fixes for ever, and the folder of the query that it is at.

    C/tagstream/meta.json                     the fixed choices, written once and compared at every start
    C/tagstream/building.txt                  only while a command (rescale, index import) makes the checkpoint
    C/tagstream/runs/, root                   the checkpoint's own, whatever query it is at
    C/tagstream/changed_keys                  rows of changed keys, for records of later batches
    R/metadata, offsets, commits, state, ...  Spark's: R is the checkpoint location that Spark is given
    R/tagstream/index, manifests, profiles, quarantine, schemas, takeover, begins.json

A command that makes a checkpoint writes the files where they will stay, ``meta.json`` last, by an exclusive
create: without it there is no checkpoint. A process that was killed before leaves ``building.txt``, so the next
one knows what it may remove.

R of a checkpoint's first query is C itself. A query that cannot continue is retired: the next one begins in
``C/tagstream/roots/<n>``, which the register ``C/tagstream/root`` names. Retiring is only the write of that
register: a kill leaves the old root or the new one, and the files of a retired query stay where they were.
``why.txt`` in the new root is for people.

A stream is named by its topic, its folder, or a given name. A folder has several spellings.
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

    A folder is named by its absolute path. Earlier versions kept it as it was spelled, so a relative path stands for each
    folder that it is the end of, and ``file:`` URLs and trailing slashes are paths, too. Links are followed. A single word
    may as well be a topic: it stands for a folder of the working directory only.
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

# Field -> the option that sets it; None: it follows from the table and the source.
_OPTION = {
    "shuffle_partitions": "spark.sql.shuffle.partitions",
    "key_groups": "index.key.groups",
    "stream_id": "hoodie.datasource.write.streaming.checkpoint.identifier",
    "ordering": None,
    "global_index": "index.global.enabled",
    "index": "hoodie.index.type",
}
# What a kind of index means to who chooses one.
_INDEX_KINDS = {
    STATE_INDEX: "STATE (keys kept as the stream's state)",
    TABLE_INDEX: "one that looks keys up in the table (BLOOM, SIMPLE, BUCKET, ...)",
}
# Sizes with a default that depends on the machine: only a value that the user gave may contradict the checkpoint.
_DEFAULTED = ("shuffle_partitions", "key_groups")


@dataclass(frozen=True)
class BoundTo:
    """The table that a checkpoint is of: its name, its base path, and where the checkpoint was when that was noted."""

    name: str
    path: str
    checkpoint: str


@dataclass(frozen=True)
class CheckpointMeta:
    """The fixed choices of a checkpoint. `labels[i]` is the label of the keys with `crc32(key) % key_groups == i`.

    `index`: whether the places of keys are Spark's state or are looked up in the table (every pull-type index): a query of
    one kind can't go on as the other. `stream_id` is empty while only an index was loaded: the first stream on the
    checkpoint gives it its name. `table` is None in a file of version 1, until the next start.
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
    """The choices of a new checkpoint, the key groups' labels among them."""
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
    """The checkpoint's fixed choices, made from the arguments if there are none yet.

    `explicit` names the options that the user gave: a number of key groups or shuffle partitions that is only a
    default of this machine gives way to the checkpoint's. Everything else must agree; StateError names what does not.
    An empty `stream_id` agrees with every one, and a checkpoint without one takes the first that is given.
    The table is noted and not compared: whether another one may take the checkpoint over, the caller has found out.
    `unused`: nothing was done under the choices that are there, so new ones take their place.
    """
    path = checkpoint.where(META_FILE)
    table = BoundTo(table_name, table_path, checkpoint.root)
    wanted = new_meta(key_groups, shuffle_partitions, stream_id, ordering, global_index, index, table)
    if not checkpoint.exists(META_FILE):
        create(checkpoint, META_FILE, meta_bytes(wanted))  # another start that was first: its choices hold
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
    stream_id = found.stream_id or stream_id  # another spelling of its folder stays as the commits have it
    now = replace(found, stream_id=stream_id, table=table)
    if now != found:  # the caller holds the table's lease: no other start does the same
        checkpoint.replace(META_FILE, meta_bytes(now))
    return now


def check_fixed(path: str, found: CheckpointMeta, *, explicit: Collection[str], **given: Any) -> None:
    """StateError unless what is given is what the checkpoint at `path` fixes; `explicit` as above."""
    for name, value in given.items():
        have, option = getattr(found, name), _OPTION[name]
        if name == "stream_id" and ("" in (value, have) or same_stream(value, have)):
            continue
        if have == value or (name in _DEFAULTED and option not in explicit):
            continue
        said, now = _INDEX_KINDS.get(have, repr(have)), _INDEX_KINDS.get(value, repr(value))
        raise StateError(f"{path} fixes {name} as {said}, but {option or 'the table'} now says {now}; {_way_out(name)}")


def _way_out(name: str) -> str:
    if name in _DEFAULTED:
        return (
            "go back to that value, or make a checkpoint with another one from this: tagstream rescale "
            "(docs/operations/commands.md) keeps index and offsets"
        )
    if name == "stream_id":
        return (
            "this checkpoint is that of another source. Give the new source a checkpoint of its own; if it is the same one "
            f"under another name, name it as before with --hoodie-conf {_OPTION[name]}"
        )
    return "go back to that value, or start with a new checkpoint"


def meta_bytes(meta: CheckpointMeta) -> bytes:
    """What the file holds."""
    return json.dumps({"version": META_VERSION, **asdict(meta)}, indent=1).encode()


_OURS = "tagstream"
_MARK = "building.txt"


def begin_building(checkpoint: Storage, by: str) -> None:
    """Mark an empty folder before the first file is written; ``by`` which command, for people."""
    checkpoint.replace(f"{_OURS}/{_MARK}", f"{by} is making this checkpoint, or was killed while it did.\n".encode())


def is_unfinished(checkpoint: Storage) -> bool:
    """Whether there is only what such a command left. One that was killed in its very last step has made a checkpoint."""
    return checkpoint.exists(f"{_OURS}/{_MARK}") and not checkpoint.exists(META_FILE)


def finish_building(checkpoint: Storage, meta: CheckpointMeta) -> bool:
    """Make it a checkpoint; False when another process has made one here."""
    made = create(checkpoint, META_FILE, meta_bytes(meta))
    if made:
        checkpoint.delete(f"{_OURS}/{_MARK}")
    return made


def clear_unfinished(checkpoint: Storage) -> bool:
    """Remove what a command that did not come to its end left; False when there is nothing of the kind.

    The caller holds the lease of the table that the command held, so it is not at work any more.
    """
    if not is_unfinished(checkpoint):
        return False
    for entry in checkpoint.list(_OURS):  # the mark last: a kill in here leaves it
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
SCHEMAS, LEFT = "tagstream/schemas", "tagstream/changed_keys"
ROOT_VERSION = 1
_REGISTER, _ROOTS = "tagstream/root", "tagstream/roots"


@dataclass(frozen=True)
class Root:
    """Root ``number`` of a checkpoint (0: the checkpoint itself). ``version``: of the register that names it."""

    number: int
    files: Storage
    version: str | None = None


def current_root(checkpoint: Storage) -> Root:
    """The root of the query that the checkpoint is at; StateError when the register cannot be used."""
    register = checkpoint.read_register(_REGISTER)
    if register is None:
        return Root(0, checkpoint)
    where = checkpoint.where(_REGISTER)
    try:
        doc: dict[str, Any] = json.loads(register.data)
        version, number = doc["version"], int(doc["root"])
    except (ValueError, KeyError, TypeError) as e:
        raise StateError(f"{where} is damaged ({e!r}); restore it from a copy, or start with a new checkpoint") from e
    if version != ROOT_VERSION:
        raise StateError(
            f"{where} has version {version!r}, this program knows {ROOT_VERSION}; run the program version that wrote it"
        )
    return Root(number, root_at(checkpoint, number), register.version)


def root_at(checkpoint: Storage, number: int) -> Storage:
    """The files of a root by its number."""
    return checkpoint.below(f"{_ROOTS}/{number}") if number else checkpoint


def root_numbers(checkpoint: Storage) -> list[int]:
    """The roots that the checkpoint has or had, in the order of their queries; 0 is the checkpoint itself."""
    return [0, *sorted(int(name) for name in checkpoint.names(_ROOTS) if name.isdigit())]


def next_root(checkpoint: Storage, root: Root, why: str) -> Root:
    """Retire the query of ``root``: a new, empty root takes its place. StateError when it is not the current one any more.

    ``why`` is a sentence without its full stop.
    """
    taken = [int(name) for name in checkpoint.names(_ROOTS) if name.isdigit()]
    number = max([root.number, *taken]) + 1  # one that a killed run had only begun is passed over
    files = root_at(checkpoint, number)
    files.replace(
        "why.txt", f"This query goes on from the one in {root.files.root}, which was retired: {why}.\n".encode()
    )
    doc = {"version": ROOT_VERSION, "root": number, "why": why}
    try:
        version = checkpoint.swap(_REGISTER, json.dumps(doc, indent=1).encode(), root.version)
    except StaleVersionError as e:
        raise StateError(
            f"the query in {root.files.root} was retired by another process meanwhile; this one must not go on: start again"
        ) from e
    return Root(number, files, version)
