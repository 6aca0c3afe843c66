"""Plans of the file source that no batch can ask for any more."""

from __future__ import annotations

from tagstream.streaming.batch.epoch import newest_batch, raw_offset, whole_file_log
from tagstream.streaming.source.files.plan_log import PlanLog, plan_number
from tagstream.table.storage.storage import Storage

_KEPT = 200  # fewer than so many cost nothing


def forget_old_plans(root: Storage, batch_id: int, retain_batches: int) -> None:
    """Remove the plans of batches that are finished and older than the ``retain_batches`` before ``batch_id``.

    Which plans they took is in Spark's log of files; their numbers do not tell.
    """
    if batch_id % max(1, retain_batches // 10):
        return  # it lists folders, which not every batch must wait for
    committed = newest_batch(root, "commits")
    if committed is None:
        return
    log = PlanLog(root)
    there = log.numbers
    offset = raw_offset(root, min(batch_id - retain_batches, committed))
    if len(there) <= _KEPT or offset is None:
        return
    last = int(offset["logOffset"])
    try:
        entries = whole_file_log(root)
    except FileNotFoundError:  # Spark has folded its log just now; the next time will do
        return
    taken = {plan_number(e["path"]) for e in entries if int(e["batchId"]) <= last}
    log.forget_plans([n for n in there if n in taken])
