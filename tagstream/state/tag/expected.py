"""Where every key group must stand when a batch begins: what the committed batches left behind, by their manifests.

Spark's state of a key group is in a file of the checkpoint, which any driver that works on it can replace: also one that
stood still in a batch and wakes up when another has committed that batch and gone on. So the driver says in the write
profile which chain each key group must stand at, and the tag step takes no other one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tagstream.state.durable.files import batch_of
from tagstream.state.durable.manifest import BatchManifest, DeltaRef, manifest_names
from tagstream.state.errors import IndexDamagedError
from tagstream.table.storage.storage import Storage

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
        chains = {**self.chains, **{label: _chain(text) for label, text in deltas.items()}}
        return ExpectedChains(self.query_id, self.generation, self.batch_id + 1, chains, self.whole)


def short_chain(chain: str) -> str:
    """A chain as `ExpectedChains` has it."""
    return chain[:_DIGITS]


def chains_before(
    manifests: Storage, labels: Collection[int], query_id: str, generation: int, batch_id: int, retain_batches: int
) -> ExpectedChains:
    """What batch `batch_id` begins at, from the manifests of the batches before it.

    `retain_batches`: of so many batches all manifests are there, of older ones those with a key group's newest entry
    (state/durable/gc.py). Of what lies behind one that is missing or damaged nothing is known.
    """
    chains: dict[int, str] = {}
    expected = batch_id - 1
    for name in reversed(manifest_names(manifests)):
        batch = batch_of(name)
        if batch is None or batch >= batch_id:
            continue  # of a batch that is done again
        manifest = _read(manifests, name)
        gap = batch < expected and expected >= batch_id - retain_batches
        if gap or manifest is None or manifest.query_id != query_id or manifest.generation > generation:
            return ExpectedChains(query_id, generation, batch_id, chains, whole=False)
        if manifest.generation < generation:
            return ExpectedChains(query_id, generation, batch_id, chains)
        for label, text in manifest.deltas.items():
            if label not in chains:
                chains[label] = _chain(text)
        if len(chains) == len(labels):
            return ExpectedChains(query_id, generation, batch_id, chains)
        expected = batch - 1
    gap = expected >= max(0, batch_id - retain_batches)
    return ExpectedChains(query_id, generation, batch_id, chains, whole=not gap)


def _chain(text: str) -> str:
    return short_chain(DeltaRef.from_json(text).pointer.chain)


def _read(manifests: Storage, name: str) -> BatchManifest | None:
    try:
        return BatchManifest.read(manifests, name)
    except IndexDamagedError:
        return None
