"""Keys of Hudi's HoodieIncrSource that no option has, because only one of their values is possible."""

from __future__ import annotations

from tagstream.streaming.options.keys.unsupported import ignored, unsupported
from tagstream.table.config import ConfigKey, Kind

_PREFIX = "hoodie.streamer.source.hoodieincr."
_COLUMNS = "the source's rows have their partition columns, also where only the partition paths have them; remove it"

INCR_KEYS = (
    ConfigKey(
        f"{_PREFIX}file.format",
        Kind.CHOICE,
        "HoodieIncrSource: the format of the source table's base files.",
        default="parquet",
        values={"PARQUET": "parquet"},
        section="Source",
    ),
    ConfigKey(
        "hoodie.read.timeline.holes.resolution.policy",
        Kind.CHOICE,
        "HoodieIncrSource: what happens at a pending commit of a source table of version 6, whose commits are read in "
        "the order of their instant times: the stream reads the commits before it, and waits. From version 8 on the order "
        "is that of the completion times, so nothing waits.",
        default="BLOCK",
        values={"BLOCK": "BLOCK"},
        refused_values={
            "FAIL": "the stream waits for the pending commit; remove it",
            "USE_TRANSITION_TIME": "a table of version 6 does not store when a commit was completed; upgrade the source "
            "table, or remove it",
        },
        aliases=("hoodie.datasource.read.handle.hollow.commit",),
        section="Source",
    ),
    ignored(
        f"{_PREFIX}drop.all.meta.fields.from.source",
        "the meta columns of the source's rows are never read: the target's rows have their own",
    ),
    unsupported(f"{_PREFIX}partition.fields", _COLUMNS),
    unsupported(f"{_PREFIX}partition.extractor.class", _COLUMNS),
    unsupported(
        f"{_PREFIX}data.datasource.options",
        "this program reads the source table itself, not with Spark's reader; remove it",
    ),
    unsupported(
        "hoodie.streamer.snapshotload.query.splitter.class.name",
        "the rows that the source table has at first are read in batches of --source-limit bytes; remove it",
    ),
)
