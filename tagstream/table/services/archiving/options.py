"""How long actions stay on the active timeline, with Hudi's names and defaults (hoodie.keep.*, hoodie.archive.*)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tagstream.table.errors import ConfigError
from tagstream.table.services.cleaning.options import CleanOptions, CleanPolicy
from tagstream.table.timeline.history.archive_merge import MergeOptions


@dataclass(frozen=True)
class ArchiveOptions:
    """Once there are more than ``max_commits`` completed writes, all but the newest ``min_commits`` may go.

    ``beyond_savepoint``: writes later than a savepoint go, too, and the timeline has a gap. Hudi 1.2.0 and hudi-rs do not
    see the rows of the writes in it, in tables of their own either. ``compaction_deltas``: how many delta commits make a
    compaction of a merge-on-read table due, which must stay countable (None: it is due by time).
    ``keep_rollbacks``: for an index outside of the table (HBase), which has to know what was rolled back: there a write that
    is older than the timeline, and not known to be rolled back, counts as completed. ``keep_uncompacted``: from version 8 on
    the delta commits since the last compaction stay, for hudi-rs does not look into the archive for when they were
    completed, and passes over their log files. ``merge``: how small files of version 6's archive are merged; None: not.
    """

    min_commits: int = 20
    max_commits: int = 30
    automatic: bool = True
    beyond_savepoint: bool = False
    compaction_deltas: int | None = 5
    keep_rollbacks: bool = False
    keep_uncompacted: bool = False
    merge: MergeOptions | None = field(default_factory=MergeOptions)

    def __post_init__(self) -> None:
        if not 1 <= self.min_commits < self.max_commits:
            raise ConfigError(
                f"hoodie.keep.min.commits is {self.min_commits} and hoodie.keep.max.commits {self.max_commits}: the first "
                "must be 1 at least and smaller than the second"
            )


def check_retention(archive: ArchiveOptions, clean: CleanOptions) -> None:
    """ConfigError where commits would be archived that the cleaner has to see."""
    if clean.policy is CleanPolicy.KEEP_LATEST_COMMITS and archive.min_commits <= clean.commits:
        raise ConfigError(
            f"hoodie.keep.min.commits is {archive.min_commits} and hoodie.clean.commits.retained {clean.commits}: what the "
            "cleaner retains must be on the active timeline, so the first must be greater"
        )
