"""A checkpoint's index opened for reading: which state it is at, and its key groups one by one in scratch folders."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tagstream.admin.errors import AdminError
from tagstream.admin.output import Fact
from tagstream.state.durable.generation import GenerationMarker, read_marker
from tagstream.state.durable.heads import IndexHeads, read_heads
from tagstream.state.durable.meta import META_FILE, TABLE_INDEX, CheckpointMeta, read_meta
from tagstream.state.durable.view import counts_at, open_view, sizes_at
from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.store.scratch import remove, scratch_folder
from tagstream.state.store.store_meta import StoreMeta
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class Index:
    """The index of a checkpoint as of its newest committed batch. ``layout.local_dir`` is a scratch folder."""

    files: Storage
    heads: IndexHeads

    @property
    def checkpoint(self) -> str:
        """Where it is, for people."""
        return self.files.root

    @property
    def layout(self) -> StateLayout:
        """Folders and kinds of the index."""
        return self.heads.layout

    @property
    def labels(self) -> tuple[int, ...]:
        """Labels of the key groups; the place of a label is the number of its key group."""
        return self.heads.meta.labels

    @property
    def marker(self) -> GenerationMarker | None:
        """What the generation was loaded from; None for an index that began empty."""
        return read_marker(self.layout, self.heads.generation) if self.heads.generation else None

    @property
    def partition_regex(self) -> str:
        """The partitions whose keys it has."""
        marker = self.marker
        return str(marker.report.get("partition_regex", ".*")) if marker is not None else ".*"

    def facts(self) -> list[Fact]:
        """What every command on an index says first."""
        heads, marker = self.heads, self.marker
        instant = heads.instant or (marker.instant if marker is not None else None)
        return [
            Fact("checkpoint", "checkpoint", self.checkpoint),
            Fact("batch_id", "newest batch", heads.batch_id),
            Fact("instant", "index as of", instant),
        ]

    @contextmanager
    def group(self, label: int) -> Iterator[RocksStore]:
        """A key group's store, gone again afterwards."""
        try:
            with open_view(self.layout, label, self.heads.pointers[label], self.heads.epoch) as store:
                yield store
        finally:
            remove(self.layout.group_dir(label))

    def counts(self, label: int) -> StoreMeta:
        """A key group's counters, read from its newest delta alone where that is enough."""
        heads = self.heads
        return counts_at(self.layout, label, heads.pointers[label], heads.generation, heads.epoch)

    def sizes(self, label: int) -> tuple[int, int]:
        """Bytes of a key group's snapshot and of the deltas after it."""
        return sizes_at(self.layout, label, self.heads.pointers[label])


def existing_checkpoint(url: str) -> Storage:
    """A checkpoint with an index; AdminError when there is none."""
    checkpoint = open_storage(url)
    path = checkpoint.root
    if not checkpoint.exists(META_FILE):
        if not checkpoint.exists(""):
            raise AdminError(f"{path} does not exist; check --checkpoint-dir")
        raise AdminError(f"{path} is no checkpoint of Tagstream: it has no {META_FILE}; check --checkpoint-dir")
    if read_meta(checkpoint).index == TABLE_INDEX:
        raise AdminError(
            f"{path} holds no index: its stream looks keys up in the table (hoodie.index.type). Ask the table instead: "
            "tagstream table rows --key, tagstream table validate"
        )
    return checkpoint


@contextmanager
def open_index(
    checkpoint: Storage, committed: Collection[str] | None = None, meta: CheckpointMeta | None = None
) -> Iterator[Index]:
    """The index in an existing checkpoint. Nothing of the checkpoint is locked or changed.

    ``committed``: names of the batch manifests that count; by default those of the batches that Spark has committed.
    ``meta``: the choices of a checkpoint in the making.
    """
    with scratch_folder("tagstream-index-") as scratch:
        try:
            heads = read_heads(checkpoint, scratch, committed, meta)
        except FileNotFoundError as e:  # a job that is at work has removed what it does not need any more
            raise StateError(f"{e.filename} has just been removed; read again") from e
        yield Index(checkpoint, replace(heads, layout=replace(heads.layout, lock_wait_s=0.0)))
