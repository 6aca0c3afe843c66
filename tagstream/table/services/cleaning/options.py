"""How a table is cleaned, with Hudi's names and defaults (hoodie.clean.*)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tagstream.table.errors import ConfigError


class CleanPolicy(StrEnum):
    """What is kept: slices that the newest commits, or commits of the last hours, may read; or newest slices by number."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True)
class CleanOptions:
    """``commits``, ``hours`` and ``file_versions`` are each of one policy.

    ``max_commits``: completed writes since the last clean that make a new one due. ``incremental``: only partitions are
    looked at in which something may have become old since the last clean. ``max_commits_to_clean``: how many commits one
    clean may go forward at most (None: no limit). ``whole_partitions``: partitions that a delete of partitions has emptied
    go with their folders; only where no write is at work while the clean is carried out.

    ConfigError for a number that cannot be.
    """

    policy: CleanPolicy = CleanPolicy.KEEP_LATEST_COMMITS
    commits: int = 10
    hours: int = 24
    file_versions: int = 3
    max_commits: int = 1
    incremental: bool = True
    max_commits_to_clean: int | None = None
    whole_partitions: bool = True

    def __post_init__(self) -> None:
        numbers = {
            "hoodie.clean.commits.retained": self.commits,
            "hoodie.clean.hours.retained": self.hours,
            "hoodie.clean.fileversions.retained": self.file_versions,
            "hoodie.clean.trigger.max.commits": self.max_commits,
            "hoodie.clean.max.commits.to.clean": 1 if self.max_commits_to_clean is None else self.max_commits_to_clean,
        }
        for key, number in numbers.items():
            if number < 1:
                raise ConfigError(f"{key} is {number}: it must be 1 at least")
