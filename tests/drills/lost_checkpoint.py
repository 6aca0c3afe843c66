"""The oracle of a stream whose checkpoint was lost: what the table itself does not tell is not known any more."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.support.events import Event


def oracle_of_lost_checkpoints(
    batches: Sequence[Sequence[Event]], losses: Collection[int], *, logs_keep_deletes: bool
) -> dict[str, Event]:
    """Live rows by key, when the checkpoint was lost after each of ``losses`` batches.

    The index is then loaded from the table. Live rows bring their ordering values with them. A delete is known only by the
    log of a merge-on-read table, and only when it took a row out of the table: a delete of a key that had no row, or that
    came and went within one batch, wrote nothing. An event that is older than a forgotten delete brings its row back.
    """
    last: dict[str, tuple[int, Event]] = {}
    logged: dict[str, tuple[int, Event]] = {}
    for number, batch in enumerate(batches, start=1):
        before = {key for key, (_, event) in last.items() if not event.deleted}
        for event in batch:
            assert event.ordering is not None, "a tombstone's ordering value is not in the log: not modelled here"
            if event.key not in last or event.ordering >= last[event.key][0]:
                last[event.key] = (event.ordering, event)
        for key in before:
            if last[key][1].deleted:
                logged[key] = last[key]
        if number in losses:
            kept = {key: at for key, at in last.items() if not at[1].deleted}
            last = {**(logged if logs_keep_deletes else {}), **kept}
    return {key: event for key, (_, event) in last.items() if not event.deleted}
