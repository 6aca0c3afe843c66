"""The root of a checkpoint's query: the folder of Spark's files and of the index of its batches; never moved, only left.

    C/tagstream/meta.json, runs/, root        the checkpoint's own, whatever query it is at
    C/tagstream/changed_keys                  rows of changed keys, for records of later batches
    R/metadata, offsets, commits, state, ...  Spark's: R is the checkpoint location that Spark is given
    R/tagstream/index, manifests, profiles, quarantine, schemas, takeover, begins.json

R of a checkpoint's first query is C itself. A query that cannot go on is retired: the next one begins in
``C/tagstream/roots/<n>``, which the register ``C/tagstream/root`` names. Writing that register is all that retiring is, so a
kill leaves the one or the other, and what is retired stays where it was. ``why.txt`` in the new root is for people.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tagstream.state.errors import StateError
from tagstream.table.errors import StaleVersionError
from tagstream.table.storage.storage import Storage

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
