"""Generations: the whole index loaded anew from the table, which voids every pointer of an older generation.

    gen-<g>/<label>.json    where a key group starts: its first snapshot and its counts, with a CRC-32 of its own
    gen-<g>/complete.json   written last and once: what the generation covers, and the CRC-32 of every start file

A generation without ``complete.json`` does not exist for the tag step. Generation 0 is the empty index and has no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tagstream.state.durable.files import read_sealed
from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import FileRef, Pointer, ref_from, ref_list
from tagstream.state.sealed import damaged, sealed
from tagstream.table.each import each
from tagstream.table.storage.create import create

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
