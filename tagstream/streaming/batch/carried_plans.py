"""How far a stream has read its files, carried over to a new checkpoint of the same index."""

from __future__ import annotations

from tagstream.streaming.batch.epoch import raw_offset, whole_file_log
from tagstream.streaming.source.files.plan_log import PLANS, PlanLog, plan_name, plan_number
from tagstream.table.storage.storage import Storage


def carry_plans(old: Storage, new: Storage, batch_id: int) -> bool:
    """Give the root `new` the positions of the root `old`, and the plans that the batches up to `batch_id` did not take.

    A query that begins in `new` reads these plans first. False, and nothing is changed, where `old` has no plans, or was
    begun by a version that had none: how far it read stands in Spark's own log of files.
    """
    offset = raw_offset(old, batch_id)
    if offset is None or not old.names(PLANS):
        return False
    last = int(offset["logOffset"])
    taken = {plan_number(e["path"]) for e in whole_file_log(old) if int(e["batchId"]) <= last}
    if None in taken:
        return False
    log, carried = PlanLog(old), PlanLog(new)
    positions, newest = log.positions()
    carried.keep_positions(positions, newest)
    for number in log.numbers:
        if number not in taken:
            carried.copy_plan(number, old.read(plan_name(number)))
    return True
