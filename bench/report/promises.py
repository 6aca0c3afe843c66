"""What each writer of a comparison guarantees besides speed. Without it the figures would compare different things.

By the versions in the comparison: Hudi 0.14.0 on Flink, Hudi 1.2.0 on Spark, Paimon 1.3.1, delta-rs 1.6.6.
"""

from __future__ import annotations

from collections.abc import Iterable

# By engine: order of a key's events, late events, restarts, deferred work.
PROMISES: dict[str, tuple[str, str, str, str]] = {
    "tagstream": (
        "the ordering field, over all partitions",
        "counted, not written; also after a delete",
        "exactly once from Kafka or files; the index is in the checkpoint",
        "readers merge logs until a compaction",
    ),
    "hudi-flink": (
        "the ordering field, within a partition; its index follows arrival",
        "one of another partition moves the row back",
        "exactly once; a new job reads all keys of the table, and finds the key of a moved row at both locations",
        "readers merge logs until a compaction",
    ),
    "hudi-spark": (
        "the ordering field",
        "is discarded in favour of the existing row",
        "exactly once by the batch's number; the index is the table's own",
        "readers merge logs until a compaction; files are read for the index",
    ),
    "paimon-flink": (
        "arrival: an ordering field is refused where keys move between partitions",
        "replaces the newer row, and moves it back",
        "exactly once; every start reads all keys of the table into a local index",
        "readers merge sorted runs until a compaction",
    ),
    "delta-rs": (
        "within a batch by the caller, else arrival",
        "replaces the newer row, unless the caller's condition prevents it; not after a delete",
        "by the caller: there are no offsets and no stream",
        "the writer: a batch rewrites every file that has one of its keys",
    ),
}
COLUMNS = ("writer", "what orders a key's events", "a late event", "a restart", "what is deferred")


def promises(engines: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """A row for each known engine."""
    return tuple((name, *PROMISES[name]) for name in PROMISES if name in set(engines))
