"""`tagstream/meta.json`: what a checkpoint fixes for ever, written once and compared at every start."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from tagstream.state.errors import StateError
from tagstream.state.key_group import balanced_labels
from tagstream.state.layout import OrderingKind
from tagstream.state.store.codec import FORMAT_VERSION
from tagstream.state.stream_name import same_stream
from tagstream.table.storage.create import create
from tagstream.table.storage.storage import Storage

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
            "go back to that value, or make a checkpoint with another one from this: tagstream rescale (docs/admin.md) "
            "keeps index and offsets"
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
