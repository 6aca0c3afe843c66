"""Keys of cleaning and archiving, with Hudi's names and defaults; Flink's names where units agree."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_CLEANING, _ARCHIVING = "Cleaning", "Archiving"
_POLICIES = ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS")

CLEANING_KEYS = (
    ConfigKey(
        "hoodie.clean.automatic",
        Kind.BOOL,
        "After a batch, delete the files that only old queries would read.",
        default=True,
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.async.enabled",
        Kind.BOOL,
        "Plan cleans between two batches, and delete their files beside the next ones.",
        default=False,
        aliases=("hoodie.clean.async", "clean.async.enabled"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.policy",
        Kind.CHOICE,
        "What is kept: slices that the newest commits, the newest hours, or a number of versions need.",
        default="KEEP_LATEST_COMMITS",
        values={name: name for name in _POLICIES},
        aliases=("hoodie.cleaner.policy", "clean.policy"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.commits.retained",
        Kind.INT,
        "Commits whose files are kept, so a query may run as long as so many commits take.",
        default=10,
        minimum=1,
        aliases=("hoodie.cleaner.commits.retained", "clean.retain_commits"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.hours.retained",
        Kind.INT,
        "Hours whose files are kept (KEEP_LATEST_BY_HOURS).",
        default=24,
        minimum=1,
        aliases=("hoodie.cleaner.hours.retained", "clean.retain_hours"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.fileversions.retained",
        Kind.INT,
        "Slices of each file group that are kept (KEEP_LATEST_FILE_VERSIONS).",
        default=3,
        minimum=1,
        aliases=("hoodie.cleaner.fileversions.retained", "clean.retain_file_versions"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.trigger.max.commits",
        Kind.INT,
        "Commits after which it is looked whether something is to be deleted.",
        default=1,
        minimum=1,
        aliases=("hoodie.clean.max.commits",),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.incremental.enabled",
        Kind.BOOL,
        "Look only at partitions that commits have touched since the last cleaning.",
        default=True,
        aliases=("hoodie.cleaner.incremental.mode",),
        section=_CLEANING,
    ),
)

ARCHIVING_KEYS = (
    ConfigKey(
        "hoodie.archive.automatic",
        Kind.BOOL,
        "After a batch, move old instants from the active timeline to the archive.",
        default=True,
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.keep.min.commits",
        Kind.INT,
        "Commits that stay on the active timeline; more than hoodie.clean.commits.retained.",
        default=20,
        minimum=2,
        aliases=("archive.min_commits",),
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.keep.max.commits",
        Kind.INT,
        "Commits above which old ones are archived; more than hoodie.keep.min.commits.",
        default=30,
        minimum=3,
        aliases=("archive.max_commits",),
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.archive.merge.enable",
        Kind.BOOL,
        "Table version 6: merge small files of the archive, of which each archiving makes one. Hudi's default is false.",
        default=True,
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.archive.merge.files.batch.size",
        Kind.INT,
        "How many small files of the archive are merged at least.",
        default=10,
        minimum=2,
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.archive.merge.small.file.limit.bytes",
        Kind.BYTES,
        "Greater files of the archive are not merged, and no merged one is greater.",
        default=20 << 20,
        minimum=1,
        section=_ARCHIVING,
    ),
)
