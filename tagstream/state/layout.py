"""Where a stream's index is kept and how its keys are read; fixed in the checkpoint, sent to every task."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from tagstream.table.storage.storage import Storage

OrderingKind = Literal["none", "int64", "bytes", "tuple"]


def has_bytes(kind: OrderingKind) -> bool:
    """Whether ordering values are kept as bytes."""
    return kind in ("bytes", "tuple")


@dataclass(frozen=True)
class StateLayout:
    """Folders and fixed choices of one stream's index.

    `durable` is the checkpoint's index folder, whatever store that is on; `local_dir` this host's cache folder, a path. What
    lies between `local_root` (the folder above by default) and it is this project's, too, and made for this user alone.
    `ordering`: how ordering values are kept ("int64" order-preserving, "bytes" for strings, "tuple" for several fields:
    bytes, `state.ordering`; "none" = position only).
    `ttl_ms`: how long a key is kept without a record, `tombstone_ttl_ms`: a deleted one after its delete; 0: forever.
    `snapshot_every`: deltas in a pointer before a snapshot replaces them.
    `lock_wait_s`: how long a locked local store is waited for before a fresh folder is used instead.
    """

    durable: Storage
    local_dir: str
    ordering: OrderingKind = "int64"
    global_index: bool = True
    ttl_ms: int = 0
    tombstone_ttl_ms: int = 0
    snapshot_every: int = 20
    lock_wait_s: float = 10.0
    local_root: str = ""

    @property
    def forgets(self) -> bool:
        """Whether keys leave the index by their age."""
        return self.ttl_ms > 0 or self.tombstone_ttl_ms > 0

    def deltas_dir(self, label: int) -> str:
        """Folder of a key group's deltas, in `durable`."""
        return f"deltas/{label}"

    def snapshots_dir(self, label: int) -> str:
        """Folder of a key group's snapshot manifests and the SST files they name, in `durable`."""
        return f"snapshots/{label}"

    def generation_dir(self, generation: int) -> str:
        """Folder where a bootstrap leaves one start file per key group, in `durable`."""
        return f"gen-{generation}"

    def epoch_dir(self, generation: int, epoch: int) -> str:
        """Folder where a catch-up of a generation leaves one file per key group it changes, in `durable`."""
        return f"{self.generation_dir(generation)}/epoch-{epoch}"

    def group_dir(self, label: int) -> str:
        """Local folder of a key group's store."""
        return os.path.join(self.local_dir, str(label))
