"""Delta references and the batch manifest: which delta of every key group a commit was made with."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from state.durable import temp_path
from state.errors import StateError
from state.pointer import FileRef, Pointer, ref_from, ref_list

MANIFEST_VERSION = 1


@dataclass(frozen=True)
class DeltaRef:
    """A delta and where it stands: the chain before it, and the snapshot its pointer begins with."""

    delta: FileRef
    before: str
    snapshot: FileRef | None

    def to_json(self) -> str:
        """One line of JSON."""
        doc = {"delta": ref_list(self.delta), "before": self.before, "snapshot": ref_list(self.snapshot)}
        return json.dumps(doc, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DeltaRef:
        """Parse `to_json`'s text; StateError when it is something else."""
        try:
            doc: dict[str, Any] = json.loads(text)
            return cls(FileRef(*doc["delta"]), doc["before"], ref_from(doc["snapshot"]))
        except (ValueError, KeyError, TypeError) as e:
            raise StateError(f"batch manifest holds a damaged delta reference ({e!r}): {text[:200]}") from e

    def adopt(self, pointer: Pointer, label: int) -> Pointer:
        """The pointer after this delta, as the batch that made it left it."""
        if pointer.chain != self.before:
            raise StateError(
                f"key group {label}: the state of Spark's checkpoint stands at {pointer.chain or 'the beginning'!r}, "
                f"the commit of batch {self.delta.batch} was made from {self.before or 'the beginning'!r}; this "
                "checkpoint is not the one that wrote the table, restore the right one or start with a new one"
            )
        if self.snapshot == pointer.snapshot:
            return Pointer(pointer.generation, pointer.epoch, pointer.snapshot, (*pointer.deltas, self.delta))
        return Pointer(pointer.generation, pointer.epoch, self.snapshot, (self.delta,))


@dataclass(frozen=True)
class BatchManifest:
    """`deltas`: key group label -> DeltaRef JSON, for the groups the batch changed."""

    query_id: str
    batch_id: int
    run: int
    deltas: dict[int, str]

    @property
    def name(self) -> str:
        """File name: batch and run."""
        return f"{self.batch_id:012d}-{self.run}.json"

    def write(self, folder: str) -> str:
        """Make the manifest durable and return its name; those of the batch's earlier, failed runs are removed."""
        os.makedirs(folder, exist_ok=True)
        doc = {
            "version": MANIFEST_VERSION,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "run": self.run,
            "deltas": {str(label): ref for label, ref in sorted(self.deltas.items())},
        }
        temp = temp_path(folder, self.batch_id)
        with open(temp, "x", encoding="utf-8") as f:
            json.dump(doc, f, separators=(",", ":"))
            f.flush()
            os.fsync(f.fileno())
        os.replace(temp, os.path.join(folder, self.name))
        prefix = f"{self.batch_id:012d}-"
        for other in os.listdir(folder):
            if other.startswith(prefix) and other != self.name:
                os.unlink(os.path.join(folder, other))
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return self.name

    @classmethod
    def read(cls, path: str) -> BatchManifest:
        """Read a manifest; StateError when it is missing or damaged."""
        try:
            with open(path, encoding="utf-8") as f:
                doc: dict[str, Any] = json.load(f)
            version = doc.pop("version")
            if version == MANIFEST_VERSION:
                doc["deltas"] = {int(label): str(ref) for label, ref in doc["deltas"].items()}
                return cls(**doc)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise StateError(
                f"batch manifest {path} cannot be read ({e!r}); restore it, or use a new checkpoint"
            ) from e
        raise StateError(f"batch manifest {path} has version {version!r}, this program knows {MANIFEST_VERSION}")
