"""The pointer: the value Spark's group state holds for a key group, naming its durable files.

    {"v":1,"g":generation,"e":epoch,"s":snapshot | null,"d":[delta, ...]}
    snapshot = [batch, chain, file, bytes, crc32]      chain: the delta the snapshot stands at
    delta    = [batch, chain, file, bytes, crc32]      chain: hash of its content and of the chain before it

A local store is usable for a pointer exactly when its own chain is one the pointer names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tagstream.state.errors import StateError

POINTER_VERSION = 1
ROOT_CHAIN = ""


@dataclass(frozen=True)
class FileRef:
    """A durable file: the batch that wrote it, the chain a store stands at once it is applied, size and CRC-32."""

    batch: int
    chain: str
    file: str
    size: int
    crc: int


@dataclass(frozen=True)
class Pointer:
    """Where a key group's committed state is."""

    generation: int = 0
    epoch: int = 0
    snapshot: FileRef | None = None
    deltas: tuple[FileRef, ...] = ()

    @property
    def base_chain(self) -> str:
        """Chain of the state before the first delta."""
        return self.snapshot.chain if self.snapshot else ROOT_CHAIN

    @property
    def chain(self) -> str:
        """Chain of the whole committed state."""
        return self.deltas[-1].chain if self.deltas else self.base_chain

    def after(self, chain: str) -> tuple[FileRef, ...] | None:
        """The deltas a store at `chain` still lacks; None when it is of another lineage or ahead."""
        if chain == self.base_chain:
            return self.deltas
        for i, delta in enumerate(self.deltas):
            if delta.chain == chain:
                return self.deltas[i + 1 :]
        return None

    def to_doc(self) -> dict[str, Any]:
        """The pointer as JSON's types."""
        return {
            "v": POINTER_VERSION,
            "g": self.generation,
            "e": self.epoch,
            "s": ref_list(self.snapshot),
            "d": [ref_list(d) for d in self.deltas],
        }

    @classmethod
    def from_doc(cls, doc: dict[str, Any]) -> Pointer:
        """The pointer of `to_doc`'s form; ValueError, KeyError or TypeError for something else."""
        if doc["v"] != POINTER_VERSION:
            raise ValueError(f"pointer version {doc['v']!r}, this program knows {POINTER_VERSION}")
        deltas = tuple(FileRef(*d) for d in doc["d"])
        return cls(int(doc["g"]), int(doc["e"]), ref_from(doc["s"]), deltas)

    def to_bytes(self) -> bytes:
        """Compact JSON."""
        return json.dumps(self.to_doc(), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, label: int) -> Pointer:
        """Parse Spark's value for key group `label`; StateError when it is not a pointer of this version."""
        try:
            doc = json.loads(data)
            version = doc.get("v")
            if version == POINTER_VERSION:
                return cls.from_doc(doc)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise StateError(f"state of key group {label} is not a pointer ({e!r}); the checkpoint is damaged") from e
        raise StateError(
            f"state of key group {label} has pointer version {version!r}, this program knows {POINTER_VERSION}; "
            "run the program version that wrote the checkpoint"
        )


def ref_list(ref: FileRef | None) -> list[Any] | None:
    """JSON form of a reference."""
    return None if ref is None else [ref.batch, ref.chain, ref.file, ref.size, ref.crc]


def ref_from(doc: list[Any] | None) -> FileRef | None:
    """Reference from its JSON form."""
    return None if doc is None else FileRef(*doc)
