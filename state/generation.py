"""Generations: the whole index loaded anew from the table, which voids every pointer of an older generation.

    gen-<g>/<label>.json    where a key group starts: its first snapshot and its counts, with a CRC-32 of its own
    gen-<g>/complete.json   written last and once: what the generation covers, and the CRC-32 of every start file

A generation without ``complete.json`` does not exist for the tag step. Generation 0 is the empty index and has no files.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from state.durable import write_new
from state.errors import StateError
from state.layout import StateLayout
from state.pointer import FileRef, Pointer, ref_from, ref_list

GENERATION_VERSION = 1
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

    `instant` is None for a table without commits. `report` is the loader's own account of itself.
    """

    generation: int
    instant: str | None
    live: int
    tombstones: int
    starts: dict[int, int]
    report: Mapping[str, Any] = field(default_factory=dict)


def start_path(layout: StateLayout, generation: int, label: int) -> str:
    """The start file of a key group."""
    return os.path.join(layout.generation_dir(generation), f"{label}.json")


def marker_path(layout: StateLayout, generation: int) -> str:
    """The file that makes a generation complete."""
    return os.path.join(layout.generation_dir(generation), _MARKER)


def write_start(layout: StateLayout, start: GroupStart, batch_id: int) -> GroupStart:
    """Make a start file durable; another attempt's, if it was first, is the one that counts and is returned."""
    doc = {**asdict(start), "snapshot": ref_list(start.snapshot)}
    write_new(start_path(layout, start.generation, start.label), _sealed(doc), batch_id, layout.durable_fsync)
    found = read_start(layout, start.generation, start.label)
    assert found is not None
    return found


def read_start(layout: StateLayout, generation: int, label: int) -> GroupStart | None:
    """A group's start; None when there is none yet, StateError when the file is damaged."""
    path = start_path(layout, generation, label)
    found = _read_sealed(path)
    if found is None:
        return None
    doc = found[0]
    try:
        start = GroupStart(**{**doc, "snapshot": ref_from(doc["snapshot"])})
    except (TypeError, KeyError) as e:
        raise _damaged(path, repr(e)) from e
    if (start.generation, start.label) != (generation, label):
        raise _damaged(path, f"it is of key group {start.label} of generation {start.generation}")
    return start


def complete_generation(layout: StateLayout, marker: GenerationMarker, batch_id: int) -> GenerationMarker:
    """Declare a generation complete, with the checksums of its start files filled in; the first declaration counts."""
    starts = {}
    for label in marker.starts:
        found = _read_sealed(start_path(layout, marker.generation, label))
        if found is None:
            raise StateError(
                f"generation {marker.generation} of the index lacks key group {label}; run the bootstrap again"
            )
        starts[label] = found[1]
    doc = {**asdict(marker), "starts": {str(label): crc for label, crc in sorted(starts.items())}}
    write_new(marker_path(layout, marker.generation), _sealed(doc), batch_id, layout.durable_fsync)
    done = read_marker(layout, marker.generation)
    assert done is not None
    return done


def read_marker(layout: StateLayout, generation: int) -> GenerationMarker | None:
    """What a complete generation covers; None when it is not complete, StateError when the file is damaged."""
    path = marker_path(layout, generation)
    found = _read_sealed(path)
    if found is None:
        return None
    try:
        doc = {**found[0], "starts": {int(label): int(crc) for label, crc in found[0]["starts"].items()}}
        return GenerationMarker(**doc)
    except (TypeError, KeyError, ValueError, AttributeError) as e:
        raise _damaged(path, repr(e)) from e


def newest_generation(layout: StateLayout) -> GenerationMarker | None:
    """The newest complete generation; None when the index was never loaded from a table."""
    names = os.listdir(layout.durable_dir) if os.path.isdir(layout.durable_dir) else []
    numbers = sorted(int(n[len(_PREFIX) :]) for n in names if n.startswith(_PREFIX) and n[len(_PREFIX) :].isdigit())
    return next((marker for g in reversed(numbers) if (marker := read_marker(layout, g)) is not None), None)


def next_generation(layout: StateLayout) -> int:
    """The number to load next: an unfinished load of it goes on."""
    newest = newest_generation(layout)
    return 1 if newest is None else newest.generation + 1


def starting_pointer(layout: StateLayout, generation: int, label: int) -> Pointer:
    """Where a key group without a pointer of this generation starts; StateError unless the generation is complete."""
    marker = read_marker(layout, generation)
    if marker is None:
        raise StateError(
            f"generation {generation} of the index in {layout.durable_dir} is not complete, so key group {label} has no "
            "start; run the bootstrap to its end (it goes on where it stopped)"
        )
    path = start_path(layout, generation, label)
    found = _read_sealed(path)
    if found is None or found[1] != marker.starts.get(label):
        raise _damaged(path, "it is missing" if found is None else "it is not the one that the generation ended with")
    start = read_start(layout, generation, label)
    assert start is not None
    return start.pointer()


def _sealed(doc: Mapping[str, Any]) -> bytes:
    """JSON with a version and, first, the CRC-32 of the rest."""
    body = json.dumps({"version": GENERATION_VERSION, **doc}, separators=(",", ":"))
    return f"{zlib.crc32(body.encode()):08x} {body}".encode()


def _read_sealed(path: str) -> tuple[dict[str, Any], int] | None:
    """(content, CRC-32 of the file) of what `_sealed` made; None when there is no file."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        return None
    crc, _, body = data.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        raise _damaged(path, "its checksum does not match")
    doc: dict[str, Any] = json.loads(body)
    version = doc.pop("version", None)
    if version != GENERATION_VERSION:
        raise StateError(
            f"{path} has version {version!r}, this program knows {GENERATION_VERSION}; run the program version that "
            "wrote the checkpoint"
        )
    return doc, zlib.crc32(data)


def _damaged(path: str, why: str) -> StateError:
    return StateError(
        f"{path} cannot be used ({why}); put it back from a copy of the checkpoint, or load the index from the table "
        "again under a new generation"
    )
