"""Where a key group stands when a batch begins, and that it is where the committed batches left it."""

from __future__ import annotations

from tagstream.state.durable.generation import starting_pointer
from tagstream.state.errors import IndexDamagedError, StateError
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import Pointer
from tagstream.state.tag.expected import short_chain
from tagstream.table.write.write_profile import WriteProfile


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
