"""Loads of the index: of the whole table (an index load), and of other writers' commits after it (a catch-up).

    gen-<g>/<label>.json               where a key group starts: its first snapshot, its counts, its own CRC-32
    gen-<g>/complete.json              written last and once: what it covers, the CRC-32 of every start file
    gen-<g>/epoch-<e>/<label>.arrow    the keys that the key group must have in the touched file groups
    gen-<g>/epoch-<e>/complete.json    written last and once: the commits, the file groups, the files' checksums

``g`` (in the code: generation) is the number of the index load, ``e`` (epoch) that of the catch-up. With a new index
load every pointer of an older one is invalid. Without ``complete.json`` the tag step ignores a load. Number 0 is the
empty index and has no files. A key group that is behind applies the missing catch-ups before its next records
(state/catch_up.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.durable_files import FileRef, Pointer, damaged, read_sealed, ref_from, ref_list, sealed
from tagstream.state.errors import StateError
from tagstream.state.layout import OrderingKind, StateLayout, has_bytes
from tagstream.state.tag_batch import OBJECTS
from tagstream.table.storage.storage import create, each
from tagstream.table.stored_names import from_stored, to_stored

INDEX_LOAD_VERSION = 2
_MARKER = "complete.json"
_PREFIX, _CATCH_UP = "gen-", "epoch-"


@dataclass(frozen=True)
class GroupStart:
    """Where key group `label` starts in an index load.

    `live`, `tombstones`: number of keys. `twice`: keys found live in several locations. `size`: bytes of the store.
    """

    label: int
    index_load: int
    snapshot: FileRef
    live: int
    tombstones: int
    twice: int
    size: int

    def pointer(self) -> Pointer:
        """The pointer of a group that has not run a batch on this index load yet."""
        return Pointer(self.index_load, 0, self.snapshot)


@dataclass(frozen=True)
class IndexLoadMarker:
    """A complete index load: the table's instant that it covers and, per label, the CRC-32 of the start file.

    `instant` is None for a table without commits. `covered`: all writes of its timeline that were completed then.
    `first_batch`: the first batch that may run on the load. `report`: the loader's report.
    """

    index_load: int
    instant: str | None
    live: int
    tombstones: int
    starts: dict[int, int]
    report: Mapping[str, Any] = field(default_factory=dict)
    covered: tuple[str, ...] = ()
    first_batch: int = 0


def start_path(layout: StateLayout, index_load: int, label: int) -> str:
    """Path of a key group's start file in the durable folder."""
    return f"{layout.index_load_dir(index_load)}/{label}.json"


def marker_path(layout: StateLayout, index_load: int) -> str:
    """Path of the file that makes an index load complete, in the durable folder."""
    return f"{layout.index_load_dir(index_load)}/{_MARKER}"


def write_start(layout: StateLayout, start: GroupStart) -> GroupStart:
    """Make a start file durable and return it. When another attempt was first, its file counts and is returned."""
    doc = {**to_stored(asdict(start)), "snapshot": ref_list(start.snapshot)}
    create(layout.durable, start_path(layout, start.index_load, start.label), sealed(doc, INDEX_LOAD_VERSION))
    found = read_start(layout, start.index_load, start.label)
    assert found is not None
    return found


def read_start(layout: StateLayout, index_load: int, label: int) -> GroupStart | None:
    """A group's start; None when it does not exist yet, StateError when the file is damaged."""
    path = start_path(layout, index_load, label)
    found = read_sealed(layout.durable, path, INDEX_LOAD_VERSION)
    if found is None:
        return None
    doc = found[0]
    try:
        start = GroupStart(**{**from_stored(doc), "snapshot": ref_from(doc["snapshot"])})
    except (TypeError, KeyError) as e:
        raise damaged(layout.durable.where(path), repr(e)) from e
    if (start.index_load, start.label) != (index_load, label):
        where = layout.durable.where(path)
        raise damaged(where, f"it is of key group {start.label} of index load {start.index_load}")
    return start


def complete_index_load(layout: StateLayout, marker: IndexLoadMarker) -> IndexLoadMarker:
    """Mark an index load as complete, with the checksums of its start files. The first marker counts and is returned.

    StateError when a start file is missing or damaged.
    """

    def crc_of_start(label: int) -> int:
        found = read_sealed(layout.durable, start_path(layout, marker.index_load, label), INDEX_LOAD_VERSION)
        if found is None:
            raise StateError(f"index load {marker.index_load} lacks key group {label}; run the bootstrap again")
        return found[1]

    starts = dict(zip(marker.starts, each(crc_of_start, marker.starts), strict=True))
    doc = {**to_stored(asdict(marker)), "starts": {str(label): crc for label, crc in sorted(starts.items())}}
    create(layout.durable, marker_path(layout, marker.index_load), sealed(doc, INDEX_LOAD_VERSION))
    done = read_marker(layout, marker.index_load)
    assert done is not None
    return done


def read_marker(layout: StateLayout, index_load: int) -> IndexLoadMarker | None:
    """What a complete index load covers; None when it is not complete, StateError when the file is damaged."""
    path = marker_path(layout, index_load)
    found = read_sealed(layout.durable, path, INDEX_LOAD_VERSION)
    if found is None:
        return None
    try:
        doc = {**found[0], "starts": {int(label): int(crc) for label, crc in found[0]["starts"].items()}}
        return IndexLoadMarker(**{**from_stored(doc), "covered": tuple(doc["covered"])})
    except (TypeError, KeyError, ValueError, AttributeError) as e:
        raise damaged(layout.durable.where(path), repr(e)) from e


def index_load_numbers(layout: StateLayout) -> list[int]:
    """Numbers of the index loads that have a folder, complete or not, ascending."""
    names = layout.durable.names("")
    return sorted(int(n[len(_PREFIX) :]) for n in names if n.startswith(_PREFIX) and n[len(_PREFIX) :].isdigit())


def newest_index_load(layout: StateLayout) -> IndexLoadMarker | None:
    """The newest complete index load; None when the index was never loaded from a table."""
    numbers = index_load_numbers(layout)
    return next((marker for g in reversed(numbers) if (marker := read_marker(layout, g)) is not None), None)


def next_index_load(layout: StateLayout) -> int:
    """The number of the next index load. An unfinished load keeps its number and is continued."""
    numbers = index_load_numbers(layout)
    while numbers:
        number = numbers.pop()
        try:
            if read_marker(layout, number) is not None:
                return number + 1
        except StateError:  # damaged: the next load must not be confused with it
            return number + 1
    return 1


def starting_pointer(layout: StateLayout, index_load: int, label: int) -> Pointer:
    """Where a key group without a pointer of this index load starts; StateError unless the load is complete."""
    marker = read_marker(layout, index_load)
    if marker is None:
        raise StateError(
            f"index load {index_load} in {layout.durable.root} is not complete, so key group {label} has no start; run "
            "the bootstrap again (it continues where it stopped)"
        )
    path = start_path(layout, index_load, label)
    found = read_sealed(layout.durable, path, INDEX_LOAD_VERSION)
    if found is None or found[1] != marker.starts.get(label):
        why = "it is missing" if found is None else "it is not the one that the index load ended with"
        raise damaged(layout.durable.where(path), why)
    start = read_start(layout, index_load, label)
    assert start is not None
    return start.pointer()


CATCH_UP_VERSION = 1
_OTHERS = pa.field("others", pa.list_(pa.int32()))  # only when a key is in several groups


@dataclass(frozen=True)
class TouchedGroup:
    """A file group that a commit wrote to or replaced; `instant`: base instant of its newest slice ("0": replaced)."""

    partition: str
    file_id: str
    instant: str


@dataclass(frozen=True)
class CatchUpRows:
    """Keys of one key group in the touched file groups, ascending and unique.

    `place`: index into the touched groups. `flags`: of the location record; TOMBSTONE: a log file has a delete of the
    key. `ordering`: int64, or objects of bytes, zero or empty where unknown. `others`: for keys that are live in several
    of the groups, the indexes of the groups that `place` does not name.
    """

    skeys: OBJECTS
    place: npt.NDArray[np.int32]
    ordering: npt.NDArray[Any]
    flags: npt.NDArray[np.uint8]
    others: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CatchUpMarker:
    """A complete catch-up. `instants`: the commits that it adds. `minutes`: time of the catch-up, in minutes since 1970.

    `removals` True: these commits may have removed keys from the touched groups, so each key group checks its own keys.
    False: they only added keys. `files`: label -> CRC-32 of its file; a label without keys in these groups has none.
    """

    index_load: int
    catch_up: int
    instants: tuple[str, ...]
    touched: tuple[TouchedGroup, ...]
    removals: bool
    minutes: int
    files: dict[int, int] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


def side_path(layout: StateLayout, index_load: int, catch_up: int, label: int) -> str:
    """Path of a key group's file of a catch-up, in the durable folder."""
    return f"{layout.catch_up_dir(index_load, catch_up)}/{label}.arrow"


def write_side(layout: StateLayout, index_load: int, catch_up: int, label: int, rows: CatchUpRows) -> int:
    """Make a key group's rows durable and return the file's CRC-32. The file of an earlier attempt is kept."""
    columns = [
        pa.array(rows.skeys, pa.binary()),
        pa.array(rows.place),
        pa.array(rows.ordering, _schema(layout.ordering).field("ordering").type),
        pa.array(rows.flags),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=_schema(layout.ordering))
    if rows.others:
        lists = [rows.others.get(skey) for skey in rows.skeys.tolist()]
        batch = batch.append_column(_OTHERS, pa.array(lists, _OTHERS.type))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    path = side_path(layout, index_load, catch_up, label)
    return zlib.crc32(data if create(layout.durable, path, data) else layout.durable.read(path))


def read_side(layout: StateLayout, marker: CatchUpMarker, label: int) -> CatchUpRows | None:
    """A key group's rows of a complete catch-up; None when it has none.

    IndexDamagedError when the file is missing or is not the one that the marker names.
    """
    if label not in marker.files:
        return None
    path = side_path(layout, marker.index_load, marker.catch_up, label)
    try:
        data = layout.durable.read(path)
    except FileNotFoundError as e:
        raise damaged(layout.durable.where(path), "it is missing") from e
    if zlib.crc32(data) != marker.files[label]:
        raise damaged(layout.durable.where(path), "it is not the one that the catch-up ended with")
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    rows = CatchUpRows(*(table[name].to_numpy() for name in ("skey", "place", "ordering", "flags")))
    if _OTHERS.name not in table.column_names:
        return rows
    several = table.filter(pc.is_valid(table[_OTHERS.name]))
    found = zip(several["skey"].to_pylist(), several[_OTHERS.name].to_pylist(), strict=True)
    return replace(rows, others={skey: tuple(places) for skey, places in found})


def complete_catch_up(layout: StateLayout, marker: CatchUpMarker) -> CatchUpMarker:
    """Mark a catch-up as complete, with the files that `marker` names. The first marker counts and is returned."""
    folder = layout.catch_up_dir(marker.index_load, marker.catch_up)
    doc = {
        **to_stored(asdict(marker)),
        "touched": [[t.partition, t.file_id, t.instant] for t in marker.touched],
        "files": {str(label): crc for label, crc in sorted(marker.files.items())},
    }
    create(layout.durable, f"{folder}/{_MARKER}", sealed(doc, CATCH_UP_VERSION))
    return read_catch_up_marker(layout, marker.index_load, marker.catch_up)


def find_catch_up_marker(layout: StateLayout, index_load: int, catch_up: int) -> CatchUpMarker | None:
    """The marker of a catch-up; None when it is not complete, IndexDamagedError when the file is damaged."""
    path = f"{layout.catch_up_dir(index_load, catch_up)}/{_MARKER}"
    found = read_sealed(layout.durable, path, CATCH_UP_VERSION)
    if found is None:
        return None
    try:
        doc = from_stored(found[0])
        doc["touched"] = tuple(TouchedGroup(*t) for t in doc["touched"])
        doc["files"] = {int(label): int(crc) for label, crc in doc["files"].items()}
        doc["instants"] = tuple(doc["instants"])
        return CatchUpMarker(**doc)
    except (TypeError, KeyError, ValueError, AttributeError) as e:
        raise damaged(layout.durable.where(path), repr(e)) from e


def read_catch_up_marker(layout: StateLayout, index_load: int, catch_up: int) -> CatchUpMarker:
    """The marker of a catch-up that must be complete; StateError when it is not."""
    marker = find_catch_up_marker(layout, index_load, catch_up)
    if marker is None:
        raise StateError(
            f"catch-up {catch_up} of index load {index_load} in {layout.durable.root} is not complete; start the job again, "
            "it then catches up with the table"
        )
    return marker


def complete_catch_ups(layout: StateLayout, index_load: int) -> list[CatchUpMarker]:
    """All complete catch-ups of an index load, from 1 without a gap."""
    names = layout.durable.names(layout.index_load_dir(index_load))
    count = sum(name.startswith(_CATCH_UP) and name[len(_CATCH_UP) :].isdigit() for name in names)
    found = each(partial(find_catch_up_marker, layout, index_load), range(1, count + 1))
    return [marker for marker in takewhile(lambda marker: marker is not None, found) if marker is not None]


def _schema(kind: OrderingKind) -> pa.Schema:
    ordering = pa.binary() if has_bytes(kind) else pa.int64()
    return pa.schema([("skey", pa.binary()), ("place", pa.int32()), ("ordering", ordering), ("flags", pa.uint8())])
