"""The batch manifest: what a commit did to every key group of the index."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tagstream.state.errors import IndexDamagedError, StateError
from tagstream.state.pointer import FileRef, Pointer
from tagstream.table.storage.storage import Storage

MANIFEST_VERSION = 2


@dataclass(frozen=True)
class DeltaRef:
    """What a batch did to a key group: the chain it began at, and the pointer it ended with."""

    before: str
    pointer: Pointer

    @property
    def delta(self) -> FileRef | None:
        """The newest delta; None when the batch only went past an epoch that did not concern the group."""
        return self.pointer.deltas[-1] if self.pointer.deltas else None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"before": self.before, "pointer": self.pointer.to_doc()}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DeltaRef:
        """Parse `to_json`'s text; StateError when it is something else."""
        try:
            doc: dict[str, Any] = json.loads(text)
            return cls(doc["before"], Pointer.from_doc(doc["pointer"]))
        except (ValueError, KeyError, TypeError) as e:
            raise StateError(f"batch manifest holds a damaged delta reference ({e!r}): {text[:200]}") from e

    def adopt(self, pointer: Pointer, label: int, batch_id: int) -> Pointer:
        """The pointer after the batch, as the run that committed it left it; IndexDamagedError when `pointer` is not the one
        before it.
        """
        if pointer.chain != self.before:
            raise IndexDamagedError(
                f"key group {label}: the state in Spark's checkpoint stands at {pointer.chain or 'the beginning'!r}, the "
                f"commit of batch {batch_id} was made from {self.before or 'the beginning'!r}: another driver wrote over "
                "Spark's state, or this checkpoint is not the one that wrote the table"
            )
        return self.pointer


@dataclass(frozen=True)
class BatchManifest:
    """`deltas`: key group label -> DeltaRef JSON, for the groups the batch changed. `instant`: of its commit.

    `generation` and `epoch`: what the index was at when the batch ran; a replay is done at the same.
    """

    query_id: str
    batch_id: int
    run: int
    deltas: dict[int, str]
    instant: str = ""
    generation: int = 0
    epoch: int = 0

    @property
    def name(self) -> str:
        """File name: batch and run."""
        return f"{self.batch_id:012d}-{self.run}.json"

    def write(self, manifests: Storage, *, after_others: bool = True) -> str:
        """Make the manifest durable and return its name; those of the batch's earlier, failed runs are removed.

        ``after_others`` False: there can be none of such runs, so nothing is listed.
        A later run's stays: this one may be of a driver that was paused and has been succeeded meanwhile.
        """
        doc = {
            "version": MANIFEST_VERSION,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "run": self.run,
            "instant": self.instant,
            "generation": self.generation,
            "epoch": self.epoch,
            "deltas": {str(label): ref for label, ref in sorted(self.deltas.items())},
        }
        manifests.replace(self.name, json.dumps(doc, separators=(",", ":")).encode())
        if not after_others:
            return self.name
        of_run = {name: _batch_and_run(name) for name in manifests.names("")}
        manifests.delete_many(n for n, (batch, run) in of_run.items() if batch == self.batch_id and run < self.run)
        return self.name

    @classmethod
    def read(cls, manifests: Storage, name: str) -> BatchManifest:
        """Read a manifest; IndexDamagedError when it is missing or damaged, StateError for another version."""
        try:
            doc: dict[str, Any] = json.loads(manifests.read(name))
            version = doc.pop("version")
            if version == MANIFEST_VERSION:
                doc["deltas"] = {int(label): str(ref) for label, ref in doc["deltas"].items()}
                return cls(**doc)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise IndexDamagedError(
                f"batch manifest {manifests.where(name)} cannot be read ({e!r}); restore it, or let the index be loaded "
                "from the table again"
            ) from e
        raise StateError(
            f"batch manifest {manifests.where(name)} has version {version!r}, this program knows {MANIFEST_VERSION}"
        )


def manifest_names(manifests: Storage) -> list[str]:
    """File names of the manifests, one a batch, oldest batch first.

    Where a batch has several the latest run's counts: an earlier one was left by a driver that had been succeeded.
    """
    newest: dict[int, tuple[int, str]] = {}
    for name in manifests.names(""):
        batch, run = _batch_and_run(name)
        if batch >= 0 and run > newest.get(batch, (-1, ""))[0]:
            newest[batch] = (run, name)
    return [name for _, (_, name) in sorted(newest.items())]


def _batch_and_run(name: str) -> tuple[int, int]:
    """From a manifest's file name; (-1, -1) for other files."""
    batch, _, run = name.removesuffix(".json").partition("-")
    if name.endswith(".json") and batch.isdigit() and run.isdigit():
        return int(batch), int(run)
    return -1, -1
