"""The batch manifest: what a commit changed in each key group of the index, and the pointer of each group after it.

Spark keeps the state of a key group in a file of the checkpoint. Any driver that runs on the checkpoint can replace
this file, also a driver that was paused in a batch and continues after another driver has committed that batch. So
the driver puts the expected chain of each key group into the write profile. It takes the chains from the manifests of
the committed batches. The tag step accepts only these chains.
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
from tagstream.table.stored_names import from_stored
from tagstream.table.write.write_context import WriteProfile

MANIFEST_VERSION = 2


@dataclass(frozen=True)
class DeltaRef:
    """What a batch did to a key group: `before` is the chain before the batch, `pointer` the pointer after it."""

    before: str
    pointer: Pointer

    @property
    def delta(self) -> FileRef | None:
        """The newest delta; None when the batch only passed catch-ups that did not change the group."""
        return self.pointer.deltas[-1] if self.pointer.deltas else None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"before": self.before, "pointer": self.pointer.to_doc()}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DeltaRef:
        """Parse the text of `to_json`; StateError when it is something else."""
        try:
            doc: dict[str, Any] = json.loads(text)
            return cls(doc["before"], Pointer.from_doc(doc["pointer"]))
        except (ValueError, KeyError, TypeError) as e:
            raise StateError(
                f"batch manifest has a damaged delta reference ({e!r}), restore it from a copy: {text[:200]}"
            ) from e

    def adopt(self, pointer: Pointer, label: int, batch_id: int) -> Pointer:
        """The pointer after the batch, as the run that committed the batch made it.

        IndexDamagedError when `pointer`, of key group `label`, is not the one before the batch.
        """
        if pointer.chain != self.before:
            raise IndexDamagedError(
                f"key group {label}: the state in Spark's checkpoint is at {pointer.chain or 'the beginning'!r}, but batch "
                f"{batch_id} was committed from {self.before or 'the beginning'!r}. Another driver overwrote Spark's "
                "state, or this checkpoint did not write the table. Restore the checkpoint that wrote the table"
            )
        return self.pointer


@dataclass(frozen=True)
class BatchManifest:
    """What a committed batch did to the index.

    `deltas`: key group label -> DeltaRef JSON, for the groups that the batch changed. `instant`: of the batch's commit.
    `index_load` and `catch_up`: the numbers of the index load and of the catch-up that the batch ran on. A replay of the
    batch runs on the same ones.
    """

    query_id: str
    batch_id: int
    run: int
    deltas: dict[int, str]
    instant: str = ""
    index_load: int = 0
    catch_up: int = 0

    @property
    def name(self) -> str:
        """File name: batch and run."""
        return f"{self.batch_id:012d}-{self.run}.json"

    def write(self, manifests: Storage, *, after_others: bool = True) -> str:
        """Make the manifest durable and return its name. Manifests of earlier, failed runs of the batch are removed.

        ``after_others`` False: the batch has no earlier run, so the folder is not listed.
        The manifest of a later run is kept: this run may belong to a driver that was paused and then replaced.
        """
        doc = {
            "version": MANIFEST_VERSION,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "run": self.run,
            "instant": self.instant,
            "generation": self.index_load,
            "epoch": self.catch_up,
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
        """Read a manifest; IndexDamagedError when it is missing or damaged, StateError when it has another version."""
        try:
            doc: dict[str, Any] = json.loads(manifests.read(name))
            version = doc.pop("version")
            if version == MANIFEST_VERSION:
                doc["deltas"] = {int(label): str(ref) for label, ref in doc["deltas"].items()}
                return cls(**from_stored(doc))
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise IndexDamagedError(
                f"batch manifest {manifests.where(name)} cannot be read ({e!r}); restore the file from a copy, or start the "
                "job, which loads the index from the table again"
            ) from e
        raise StateError(
            f"batch manifest {manifests.where(name)} has version {version!r}, this program knows {MANIFEST_VERSION}; run "
            "the program version that wrote it"
        )


def manifest_names(manifests: Storage) -> list[str]:
    """File names of the manifests, one per batch, oldest batch first.

    When a batch has several manifests, the one of the latest run counts. Drivers that were replaced wrote the others.
    """
    newest: dict[int, tuple[int, str]] = {}
    for name in manifests.names(""):
        batch, run = _batch_and_run(name)
        if batch >= 0 and run > newest.get(batch, (-1, ""))[0]:
            newest[batch] = (run, name)
    return [name for _, (_, name) in sorted(newest.items())]


def _batch_and_run(name: str) -> tuple[int, int]:
    """Batch id and run in a manifest's file name; (-1, -1) for other files."""
    batch, _, run = name.removesuffix(".json").partition("-")
    if name.endswith(".json") and batch.isdigit() and run.isdigit():
        return int(batch), int(run)
    return -1, -1


_DIGITS = 16  # of a chain's 32: the profile has one chain for each key group, and every worker reads the profile


@dataclass(frozen=True)
class ExpectedChains:
    """The chains from which batch `batch_id` of a query starts. `chains`: key group label -> first digits of its chain.

    `whole` True: a group that is missing in `chains` was not changed since index load `index_load`. False: the chain of
    such a group is unknown.
    """

    query_id: str
    index_load: int
    batch_id: int
    chains: Mapping[int, str] = field(default_factory=dict)
    whole: bool = True

    def is_for(self, query_id: str, index_load: int, batch_id: int) -> bool:
        """Whether these are the chains from which that batch starts."""
        return (self.query_id, self.index_load, self.batch_id) == (query_id, index_load, batch_id)

    def after(self, deltas: Mapping[int, str]) -> ExpectedChains:
        """The chains from which the next batch starts after the commit of this one; `deltas`: of its batch manifest."""
        chains = {**self.chains, **{label: _short_chain_of(text) for label, text in deltas.items()}}
        return ExpectedChains(self.query_id, self.index_load, self.batch_id + 1, chains, self.whole)


def short_chain(chain: str) -> str:
    """The part of a chain that `ExpectedChains` keeps."""
    return chain[:_DIGITS]


def chains_before(
    manifests: Storage, labels: Collection[int], query_id: str, index_load: int, batch_id: int, retain_batches: int
) -> ExpectedChains:
    """The chains from which batch `batch_id` starts, from the manifests of the batches before it.

    `labels`: of all key groups. `index_load`: number of the index load. `retain_batches`: all manifests of this many
    newest batches are kept. Of older batches only the manifests with the newest entry of a key group are kept
    (state/garbage_collection.py). A missing or damaged manifest hides the batches before it.
    """
    chains: dict[int, str] = {}
    expected = batch_id - 1
    for name in reversed(manifest_names(manifests)):
        batch = batch_of(name)
        if batch is None or batch >= batch_id:
            continue  # of a batch that runs again
        manifest = read_unless_damaged(manifests, name)
        gap = batch < expected and expected >= batch_id - retain_batches
        if gap or manifest is None or manifest.query_id != query_id or manifest.index_load > index_load:
            return ExpectedChains(query_id, index_load, batch_id, chains, whole=False)
        if manifest.index_load < index_load:
            return ExpectedChains(query_id, index_load, batch_id, chains)
        for label, text in manifest.deltas.items():
            if label not in chains:
                chains[label] = _short_chain_of(text)
        if len(chains) == len(labels):
            return ExpectedChains(query_id, index_load, batch_id, chains)
        expected = batch - 1
    gap = expected >= max(0, batch_id - retain_batches)
    return ExpectedChains(query_id, index_load, batch_id, chains, whole=not gap)


def _short_chain_of(text: str) -> str:
    return short_chain(DeltaRef.from_json(text).pointer.chain)


def read_unless_damaged(manifests: Storage, name: str) -> BatchManifest | None:
    try:
        return BatchManifest.read(manifests, name)
    except IndexDamagedError:
        return None


def expected_pointer(data: bytes | None, label: int, profile: WriteProfile, layout: StateLayout) -> Pointer:
    """The pointer in Spark's value `data` of key group `label`.

    Without a value, or with one of an older index load, it is the start of the group in the profile's index load.
    IndexDamagedError when the pointer is not the one that the driver expects. StateError when the value is newer than
    the profile.
    """
    at = Pointer.from_bytes(data, label) if data is not None else Pointer()
    void = data is None or at.index_load < profile.index_load
    if at.index_load < profile.index_load:
        at = starting_pointer(layout, profile.index_load, label)
    if at.index_load > profile.index_load or at.catch_up > profile.catch_up:
        raise StateError(
            f"key group {label} is at index load {at.index_load}, catch-up {at.catch_up}, but batch {profile.batch_id} runs "
            f"on index load {profile.index_load}, catch-up {profile.catch_up}. The files of the checkpoint are not from one "
            "point in time. Restore the whole checkpoint from one copy, or start with a new one"
        )
    wanted = profile.chains.get(label)
    fits = (void or not profile.chains_whole) if wanted is None else short_chain(at.chain) == wanted
    if not fits:
        raise IndexDamagedError(
            f"key group {label} of {layout.durable.root}: Spark's checkpoint has it at "
            f"{short_chain(at.chain) or 'the beginning'!r}, the commits before batch {profile.batch_id} ended at "
            f"{wanted or 'the beginning'!r}. Another driver, which had been paused, overwrote Spark's state"
        )
    return at
