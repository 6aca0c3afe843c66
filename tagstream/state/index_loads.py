"""Loads of the index from the table: of the whole table (a generation), and of other writers' commits (an epoch).

    gen-<g>/<label>.json               where a key group starts: its first snapshot, its counts, its own CRC-32
    gen-<g>/complete.json              written last and once: what it covers, the CRC-32 of every start file
    gen-<g>/epoch-<e>/<label>.arrow    the keys that the key group must hold in the touched file groups
    gen-<g>/epoch-<e>/complete.json    written last and once: the commits, the file groups, the files' checksums

A generation voids every pointer of an older one. Without ``complete.json`` it does not exist for the tag step.
Generation 0 is the empty index and has no files. An epoch is a catch-up within a generation. A key group that is
behind applies the epochs it lacks before its next records (state/catch_up.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
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

GENERATION_VERSION = 2
_MARKER = "complete.json"
_PREFIX = "gen-"


@dataclass(frozen=True)
class GroupStart:
    """Where key group `label` starts in a generation. `twice`: keys found live in more than one place."""

    label: int
    generation: int
    snapshot: FileRef
    live: int
    tombstones: int
    twice: int
    size: int

    def pointer(self) -> Pointer:
        """The pointer of a group that has seen no batch of this generation yet."""
        return Pointer(self.generation, 0, self.snapshot)


@dataclass(frozen=True)
class GenerationMarker:
    """A complete generation: the table's instant that it covers and, per label, the CRC-32 of the start file.

    `instant` is None for a table without commits; `covered` are all writes of its timeline that were completed then.
    `first_batch`: the first batch that may run on the generation. `report` is the loader's own account of itself.
    """

    generation: int
    instant: str | None
    live: int
    tombstones: int
    starts: dict[int, int]
    report: Mapping[str, Any] = field(default_factory=dict)
    covered: tuple[str, ...] = ()
    first_batch: int = 0


def start_path(layout: StateLayout, generation: int, label: int) -> str:
    """The start file of a key group, in the durable folder."""
    return f"{layout.generation_dir(generation)}/{label}.json"


def marker_path(layout: StateLayout, generation: int) -> str:
    """The file that makes a generation complete, in the durable folder."""
    return f"{layout.generation_dir(generation)}/{_MARKER}"


def write_start(layout: StateLayout, start: GroupStart) -> GroupStart:
    """Make a start file durable; another attempt's, if it was first, is the one that counts and is returned."""
    doc = {**asdict(start), "snapshot": ref_list(start.snapshot)}
    create(layout.durable, start_path(layout, start.generation, start.label), sealed(doc, GENERATION_VERSION))
    found = read_start(layout, start.generation, start.label)
    assert found is not None
    return found


def read_start(layout: StateLayout, generation: int, label: int) -> GroupStart | None:
    """A group's start; None when there is none yet, StateError when the file is damaged."""
    path = start_path(layout, generation, label)
    found = read_sealed(layout.durable, path, GENERATION_VERSION)
    if found is None:
        return None
    doc = found[0]
    try:
        start = GroupStart(**{**doc, "snapshot": ref_from(doc["snapshot"])})
    except (TypeError, KeyError) as e:
        raise damaged(layout.durable.where(path), repr(e)) from e
    if (start.generation, start.label) != (generation, label):
        where = layout.durable.where(path)
        raise damaged(where, f"it is of key group {start.label} of generation {start.generation}")
    return start


def complete_generation(layout: StateLayout, marker: GenerationMarker) -> GenerationMarker:
    """Declare a generation complete, with the checksums of its start files filled in; the first declaration counts."""

    def crc_of_start(label: int) -> int:
        found = read_sealed(layout.durable, start_path(layout, marker.generation, label), GENERATION_VERSION)
        if found is None:
            raise StateError(
                f"generation {marker.generation} of the index lacks key group {label}; run the bootstrap again"
            )
        return found[1]

    starts = dict(zip(marker.starts, each(crc_of_start, marker.starts), strict=True))
    doc = {**asdict(marker), "starts": {str(label): crc for label, crc in sorted(starts.items())}}
    create(layout.durable, marker_path(layout, marker.generation), sealed(doc, GENERATION_VERSION))
    done = read_marker(layout, marker.generation)
    assert done is not None
    return done


def read_marker(layout: StateLayout, generation: int) -> GenerationMarker | None:
    """What a complete generation covers; None when it is not complete, StateError when the file is damaged."""
    path = marker_path(layout, generation)
    found = read_sealed(layout.durable, path, GENERATION_VERSION)
    if found is None:
        return None
    try:
        doc = {**found[0], "starts": {int(label): int(crc) for label, crc in found[0]["starts"].items()}}
        return GenerationMarker(**{**doc, "covered": tuple(doc["covered"])})
    except (TypeError, KeyError, ValueError, AttributeError) as e:
        raise damaged(layout.durable.where(path), repr(e)) from e


def generation_numbers(layout: StateLayout) -> list[int]:
    """Generations that have a folder, complete or not, ascending."""
    names = layout.durable.names("")
    return sorted(int(n[len(_PREFIX) :]) for n in names if n.startswith(_PREFIX) and n[len(_PREFIX) :].isdigit())


def newest_generation(layout: StateLayout) -> GenerationMarker | None:
    """The newest complete generation; None when the index was never loaded from a table."""
    numbers = generation_numbers(layout)
    return next((marker for g in reversed(numbers) if (marker := read_marker(layout, g)) is not None), None)


def next_generation(layout: StateLayout) -> int:
    """The number to load next: an unfinished load of it goes on."""
    numbers = generation_numbers(layout)
    while numbers:
        number = numbers.pop()
        try:
            if read_marker(layout, number) is not None:
                return number + 1
        except StateError:  # damaged: what is loaded next must not be confused with it
            return number + 1
    return 1


def starting_pointer(layout: StateLayout, generation: int, label: int) -> Pointer:
    """Where a key group without a pointer of this generation starts; StateError unless the generation is complete."""
    marker = read_marker(layout, generation)
    if marker is None:
        raise StateError(
            f"generation {generation} of the index in {layout.durable.root} is not complete, so key group {label} has no "
            "start; run the bootstrap to its end (it goes on where it stopped)"
        )
    path = start_path(layout, generation, label)
    found = read_sealed(layout.durable, path, GENERATION_VERSION)
    if found is None or found[1] != marker.starts.get(label):
        why = "it is missing" if found is None else "it is not the one that the generation ended with"
        raise damaged(layout.durable.where(path), why)
    start = read_start(layout, generation, label)
    assert start is not None
    return start.pointer()


EPOCH_VERSION = 1
_OTHERS = pa.field("others", pa.list_(pa.int32()))  # only where a key is in several groups


@dataclass(frozen=True)
class Touched:
    """A file group that a commit wrote to or replaced; `instant`: base instant of its newest slice ("0": replaced)."""

    partition: str
    file_id: str
    instant: str


@dataclass(frozen=True)
class SideRows:
    """Keys of one key group in the touched file groups, ascending and unique.

    `place`: index into the touched groups. `flags`: of the location record; a TOMBSTONE stands for a delete that the
    logs hold. `ordering`: int64, or objects of bytes, zero/empty where unknown. `others`: of keys that are live in several
    of the groups, the indexes of the groups that `place` does not name.
    """

    skeys: OBJECTS
    place: npt.NDArray[np.int32]
    ordering: npt.NDArray[Any]
    flags: npt.NDArray[np.uint8]
    others: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochMarker:
    """A complete epoch. `instants`: the commits it catches up with. `minutes`: time of the catch-up, since 1970.

    `removals`: these commits may have removed keys from the touched groups, so each key group looks its own keys
    through; else they only added. `files`: label -> CRC-32 of its file; a label without keys there has none.
    """

    generation: int
    epoch: int
    instants: tuple[str, ...]
    touched: tuple[Touched, ...]
    removals: bool
    minutes: int
    files: dict[int, int] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


def side_path(layout: StateLayout, generation: int, epoch: int, label: int) -> str:
    """A key group's file of an epoch, in the durable folder."""
    return f"{layout.epoch_dir(generation, epoch)}/{label}.arrow"


def write_side(layout: StateLayout, generation: int, epoch: int, label: int, rows: SideRows) -> int:
    """Make a key group's rows durable and return the file's CRC-32; an earlier attempt's stay."""
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
    path = side_path(layout, generation, epoch, label)
    return zlib.crc32(data if create(layout.durable, path, data) else layout.durable.read(path))


def read_side(layout: StateLayout, marker: EpochMarker, label: int) -> SideRows | None:
    """A key group's rows of a complete epoch; None when it has none, IndexDamagedError when the file is not the one."""
    if label not in marker.files:
        return None
    path = side_path(layout, marker.generation, marker.epoch, label)
    try:
        data = layout.durable.read(path)
    except FileNotFoundError as e:
        raise damaged(layout.durable.where(path), "it is missing") from e
    if zlib.crc32(data) != marker.files[label]:
        raise damaged(layout.durable.where(path), "it is not the one that the epoch ended with")
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    rows = SideRows(*(table[name].to_numpy() for name in ("skey", "place", "ordering", "flags")))
    if _OTHERS.name not in table.column_names:
        return rows
    several = table.filter(pc.is_valid(table[_OTHERS.name]))
    found = zip(several["skey"].to_pylist(), several[_OTHERS.name].to_pylist(), strict=True)
    return replace(rows, others={skey: tuple(places) for skey, places in found})


def complete_epoch(layout: StateLayout, marker: EpochMarker) -> EpochMarker:
    """Declare an epoch complete, with the files that `marker` names; the first declaration counts."""
    folder = layout.epoch_dir(marker.generation, marker.epoch)
    doc = {
        **asdict(marker),
        "touched": [[t.partition, t.file_id, t.instant] for t in marker.touched],
        "files": {str(label): crc for label, crc in sorted(marker.files.items())},
    }
    create(layout.durable, f"{folder}/{_MARKER}", sealed(doc, EPOCH_VERSION))
    return read_epoch_marker(layout, marker.generation, marker.epoch)


def find_epoch_marker(layout: StateLayout, generation: int, epoch: int) -> EpochMarker | None:
    """The marker of an epoch; None when it is not complete, IndexDamagedError when the file is damaged."""
    path = f"{layout.epoch_dir(generation, epoch)}/{_MARKER}"
    found = read_sealed(layout.durable, path, EPOCH_VERSION)
    if found is None:
        return None
    try:
        doc = dict(found[0])
        doc["touched"] = tuple(Touched(*t) for t in doc["touched"])
        doc["files"] = {int(label): int(crc) for label, crc in doc["files"].items()}
        doc["instants"] = tuple(doc["instants"])
        return EpochMarker(**doc)
    except (TypeError, KeyError, ValueError, AttributeError) as e:
        raise damaged(layout.durable.where(path), repr(e)) from e


def read_epoch_marker(layout: StateLayout, generation: int, epoch: int) -> EpochMarker:
    """The marker of an epoch that must be complete; StateError when it is not."""
    marker = find_epoch_marker(layout, generation, epoch)
    if marker is None:
        raise StateError(
            f"epoch {epoch} of generation {generation} of the index in {layout.durable.root} is not complete; start the job "
            "again, which catches up with the table"
        )
    return marker


def complete_epochs(layout: StateLayout, generation: int) -> list[EpochMarker]:
    """All complete epochs of a generation, from 1 without a gap."""
    found: list[EpochMarker] = []
    while (marker := find_epoch_marker(layout, generation, len(found) + 1)) is not None:
        found.append(marker)
    return found


def _schema(kind: OrderingKind) -> pa.Schema:
    ordering = pa.binary() if has_bytes(kind) else pa.int64()
    return pa.schema([("skey", pa.binary()), ("place", pa.int32()), ("ordering", ordering), ("flags", pa.uint8())])
