"""Epochs: catch-ups of the index with commits of other writers, within a generation.

    gen-<g>/epoch-<e>/<label>.arrow    what the key group must hold of the file groups those commits touched, by key
    gen-<g>/epoch-<e>/complete.json    written last and once: the commits, the file groups, the files' checksums

A key group that is behind applies the epochs it lacks before its next records (state/durable/catch_up.py).
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

from tagstream.state.durable.files import read_sealed
from tagstream.state.errors import StateError
from tagstream.state.layout import OrderingKind, StateLayout, has_bytes
from tagstream.state.sealed import damaged, sealed
from tagstream.state.tag_batch import OBJECTS
from tagstream.table.storage.create import create

EPOCH_VERSION = 1
_MARKER = "complete.json"
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
