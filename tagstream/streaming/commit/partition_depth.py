"""How many folders deep a table's partitions lie (``partitionDepth``), where the values of the stream decide it.

Without url encoding a text with slashes ("2026/01/05") makes several folders. A partition that lies in another one's folder
is not found by readers that list folders, so all have one depth: that of the newest commit, for a new table that of most
records of the first batch. The decoder finds records with another one; only the first batch is looked at afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import PartitionDepthError
from tagstream.table.keys.partition_path import depth_of
from tagstream.table.timeline.write_status import WriteStatus


def find_depth(job: JobContext) -> None:
    """Note the depth that the newest commit tells; one that an earlier batch of this run told stays."""
    if not job.decode.depth_is_open:
        return
    timeline, fields = job.table.timeline(), job.decode.key_generator_rules.least_depth
    for instant in reversed(timeline.completed_writes):
        paths = timeline.metadata(job.table.storage, instant).stats
        found = [depth for path in paths if (depth := depth_of(path, fields)) is not None]
        if found:
            job.partition_depth = found[0]
            return


def settle_depth(job: JobContext, statuses: Sequence[WriteStatus], roll_back: Callable[[str], None]) -> None:
    """Note the depth of a table's first batch. Where it has several, it is rolled back and PartitionDepthError raised.

    Before its files are published: a partition that is made would hide what is below its folder.
    When the batch is done again, the depth of most records counts and the decoder takes the others out.
    """
    if job.partition_depth is not None or not job.decode.depth_is_open:
        return
    fields = job.decode.key_generator_rules.least_depth
    records: Counter[int] = Counter()
    examples: dict[int, str] = {}
    for status in statuses:
        path = status.stat.partition_path
        depth = depth_of(path, fields)
        if depth is not None:
            records[depth] += status.stat.num_writes
            examples.setdefault(depth, path)
    if not records:
        return
    most = max(records, key=lambda depth: (records[depth], -depth))
    job.partition_depth = most
    if len(records) == 1:
        return
    assert job.instant is not None
    roll_back(job.instant)
    shown = ", ".join(f"{examples[d]!r} ({d} deep, {records[d]:,} records)" for d in sorted(records))
    raise PartitionDepthError(
        f"the first batch of table {job.table.base_path} has partition paths of different depth: {shown}. Readers do not "
        f"find a partition inside another: {most} is the table's depth, as most records have it, the others are "
        "quarantined"
    )
