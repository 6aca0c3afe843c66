"""The batch manifest: what a commit did to every key group of the index, and so where each group must be afterwards.

Spark's state of a key group is in a file of the checkpoint, which any driver that works on it can replace. That
includes a driver that was paused in a batch and continues after another one has committed that batch. So the
driver writes into the write profile which chain each key group must be at, as the manifests of the committed
batches say, and the tag step accepts only that chain.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tagstream.state.durable_files import FileRef, Pointer, batch_of
from tagstream.state.errors import IndexDamagedError, StateError
from tagstream.state.index_loads import starting_pointer
from tagstream.state.layout import StateLayout
from tagstream.table.storage.storage import Storage
from tagstream.table.write.write_context import WriteProfile

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


_DIGITS = 16  # of a chain's 32: the profile has one for each key group, and every worker reads it


@dataclass(frozen=True)
class ExpectedChains:
    """What batch `batch_id` of a query begins at. `chains`: key group label -> the beginning of its chain.

    `whole`: a group that `chains` lacks has not been changed in this generation; else nothing is known of it.
    """

    query_id: str
    generation: int
    batch_id: int
    chains: Mapping[int, str] = field(default_factory=dict)
    whole: bool = True

    def is_for(self, query_id: str, generation: int, batch_id: int) -> bool:
        """Whether this is what that batch begins at."""
        return (self.query_id, self.generation, self.batch_id) == (query_id, generation, batch_id)

    def after(self, deltas: Mapping[int, str]) -> ExpectedChains:
        """What the next batch begins at when this one is committed with these deltas (of its batch manifest)."""
        chains = {**self.chains, **{label: _short_chain_of(text) for label, text in deltas.items()}}
        return ExpectedChains(self.query_id, self.generation, self.batch_id + 1, chains, self.whole)


def short_chain(chain: str) -> str:
    """A chain as `ExpectedChains` has it."""
    return chain[:_DIGITS]


def chains_before(
    manifests: Storage, labels: Collection[int], query_id: str, generation: int, batch_id: int, retain_batches: int
) -> ExpectedChains:
    """What batch `batch_id` begins at, from the manifests of the batches before it.

    `retain_batches`: of so many batches all manifests are there, of older ones those with a key group's newest entry
    (state/garbage_collection.py). Of what lies behind one that is missing or damaged nothing is known.
    """
    chains: dict[int, str] = {}
    expected = batch_id - 1
    for name in reversed(manifest_names(manifests)):
        batch = batch_of(name)
        if batch is None or batch >= batch_id:
            continue  # of a batch that is done again
        manifest = _read_unless_damaged(manifests, name)
        gap = batch < expected and expected >= batch_id - retain_batches
        if gap or manifest is None or manifest.query_id != query_id or manifest.generation > generation:
            return ExpectedChains(query_id, generation, batch_id, chains, whole=False)
        if manifest.generation < generation:
            return ExpectedChains(query_id, generation, batch_id, chains)
        for label, text in manifest.deltas.items():
            if label not in chains:
                chains[label] = _short_chain_of(text)
        if len(chains) == len(labels):
            return ExpectedChains(query_id, generation, batch_id, chains)
        expected = batch - 1
    gap = expected >= max(0, batch_id - retain_batches)
    return ExpectedChains(query_id, generation, batch_id, chains, whole=not gap)


def _short_chain_of(text: str) -> str:
    return short_chain(DeltaRef.from_json(text).pointer.chain)


def _read_unless_damaged(manifests: Storage, name: str) -> BatchManifest | None:
    try:
        return BatchManifest.read(manifests, name)
    except IndexDamagedError:
        return None


def standing_of(data: bytes | None, label: int, profile: WriteProfile, layout: StateLayout) -> Pointer:
    """The pointer that Spark's value stands for; one of no or a void generation starts at the profile's generation.

    IndexDamagedError when it is not the one that the driver expects.
    """
    at = Pointer.from_bytes(data, label) if data is not None else Pointer()
    void = data is None or at.generation < profile.generation
    if at.generation < profile.generation:
        at = starting_pointer(layout, profile.generation, label)
    if at.generation > profile.generation or at.epoch > profile.epoch:
        raise StateError(
            f"key group {label} stands at generation {at.generation}, epoch {at.epoch} of the index, batch "
            f"{profile.batch_id} is at {profile.generation} and {profile.epoch}; the checkpoint is not all of one age, "
            "restore the whole of it from one copy, or start with a new one"
        )
    wanted = profile.chains.get(label)
    fits = (void or not profile.chains_whole) if wanted is None else short_chain(at.chain) == wanted
    if not fits:
        raise IndexDamagedError(
            f"key group {label} of {layout.durable.root}: Spark's checkpoint has it at "
            f"{short_chain(at.chain) or 'the beginning'!r}, the commits before batch {profile.batch_id} left it at "
            f"{wanted or 'the beginning'!r}: another driver, which had stood still, wrote over Spark's state"
        )
    return at
