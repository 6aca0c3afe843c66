"""The flags of the commands that keep a table in order.

``tagstream table``: compact, cluster, clean, archive, savepoint, savepoints, restore, rollback, delete-partition,
insert-overwrite, dedup. ``tagstream services run``: the process of the table services.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tagstream.table.services.options import ArchiveOptions, CleanOptions, CleanPolicy, ClusteringOptions

SERVICES = frozenset(
    {"compact", "cluster", "clean", "archive", "savepoints", "savepoint", "restore", "rollback"}
    | {"delete-partition", "insert-overwrite", "dedup"}
)
Leaf = Callable[[str, str], argparse.ArgumentParser]
_PLAN = "hoodie.clustering.plan.strategy"


def add_services(leaf: Leaf) -> None:
    """``leaf`` makes the parser of a command of its name and text, with the table's path."""
    cleaning, archiving = CleanOptions(), ArchiveOptions()
    logs = _changing(leaf("compact", "merge-on-read: write the logs of file slices into new base files"))
    which = logs.add_mutually_exclusive_group()
    which.add_argument("--schedule", action="store_true", help="only plan; something else carries the plan out")
    which.add_argument("--execute", metavar="T", help="only carry out the plan of instant T")
    logs.add_argument(
        "--strategy",
        metavar="CLASS",
        default="LogFileSizeBasedCompactionStrategy",
        help="hoodie.compaction.strategy: which slices (default: LogFileSizeBasedCompactionStrategy)",
    )
    logs.add_argument(
        "--target-io", type=int, metavar="MB", default=512_000, help="hoodie.compaction.target.io (default: 512000)"
    )
    logs.add_argument("--partition-regex", metavar="REGEX", help="hoodie.compaction.partition.path.regex")
    _add_cluster(leaf)
    clean = _changing(leaf("clean", "delete the files of old slices, as hoodie.clean.* says"))
    _retention(clean, cleaning)
    archive = _changing(
        leaf("archive", "move old actions from the active timeline to the archive, as hoodie.keep.* says")
    )
    for name, default, text in (
        ("min", archiving.min_commits, "commits that stay (hoodie.keep.min.commits)"),
        ("max", archiving.max_commits, "archive once there are more (hoodie.keep.max.commits)"),
    ):
        archive.add_argument(
            f"--{name}-commits", type=int, metavar="N", default=default, help=f"{text} (default: {default})"
        )
    _retention(archive, cleaning)
    leaf("savepoints", "the savepoints, newest first")
    save = _changing(leaf("savepoint", "keep the table as of a commit until the savepoint is deleted"))
    save.add_argument("--instant", metavar="T", help="the completed commit (default: the newest)")
    save.add_argument(
        "--delete", action="store_true", help="delete the savepoint of --instant, and give its files free"
    )
    save.add_argument("--user", metavar="NAME", default="tagstream", help="who makes it (default: tagstream)")
    save.add_argument("--comment", metavar="TEXT", default="", help="what it is for")
    back = _changing(leaf("restore", "bring the table back to a savepoint: all that was committed after it is undone"))
    back.add_argument("--savepoint", metavar="T", required=True, help="the savepoint's commit")
    undo = _changing(leaf("rollback", "take back the newest completed commit"))
    undo.add_argument("--instant", metavar="T", required=True, help="the commit, which must be the newest")
    gone = _changing(leaf("delete-partition", "delete all rows of partitions; their files go with a later clean"))
    gone.add_argument(
        "--partition", metavar="PATH", action="append", required=True, help="partition path; may be repeated"
    )
    _add_overwrite(leaf)
    once = _changing(leaf("dedup", "of rows with the same key keep the newest: another writer put the key there again"))
    once.add_argument(
        "--by-partition", action="store_true", help="keys are unique in a partition alone (index.global.enabled=false)"
    )


def _add_overwrite(leaf: Leaf) -> None:
    out = _changing(leaf("insert-overwrite", "replace the rows of partitions, or of the table, by those of files"))
    out.add_argument(
        "--from", dest="source", metavar="PATH", action="append", required=True,
        help="JSON lines as the stream reads them, or Parquet (*.parquet): a file, or a folder of them; may be repeated",
    )  # fmt: skip
    which = out.add_mutually_exclusive_group()
    which.add_argument(
        "--partition",
        metavar="PATH",
        action="append",
        help="partition path to replace, also where there is no row for it; may be repeated (default: those of the rows)",
    )
    which.add_argument("--all", action="store_true", help="replace all partitions (INSERT_OVERWRITE_TABLE)")
    out.add_argument("--props", metavar="FILE", help="the stream's properties file")
    out.add_argument(
        "--hoodie-conf", metavar="KEY=VALUE", action="append", default=[], help="one of its properties; may be repeated"
    )


def _changing(out: argparse.ArgumentParser) -> argparse.ArgumentParser:
    out.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    out.add_argument("--yes", action="store_true", help="do it; no other writer may be at work on the table")
    return out


def _retention(out: argparse.ArgumentParser, default: CleanOptions) -> None:
    out.add_argument(
        "--policy", choices=[p.value for p in CleanPolicy], default=default.policy.value,
        help=f"hoodie.clean.policy (default: {default.policy.value})",
    )  # fmt: skip
    for name, key, number in (
        ("commits", "commits", default.commits),
        ("hours", "hours", default.hours),
        ("file-versions", "fileversions", default.file_versions),
    ):
        out.add_argument(
            f"--{name}", type=int, metavar="N", default=number, help=f"hoodie.clean.{key}.retained (default: {number})"
        )


def _add_cluster(leaf: Leaf) -> None:
    defaults = ClusteringOptions()
    joined = _changing(leaf("cluster", "join small file groups into new ones, sorted by columns if wished"))
    which = joined.add_mutually_exclusive_group()
    which.add_argument("--schedule", action="store_true", help="only plan; something else carries the plan out")
    which.add_argument("--execute", metavar="T", help="only carry out the plan of instant T")
    which.add_argument("--take-back", metavar="T", help="remove the plan of instant T, and what was written of it")
    joined.add_argument("--sort-columns", metavar="A,B", help=f"{_PLAN}.sort.columns (default: rows stay as they come)")
    for flag, default, key in (
        ("small-file-limit", defaults.small_file_limit, "small.file.limit"),
        ("target-file-bytes", defaults.target_file_bytes, "target.file.max.bytes"),
        ("max-groups", defaults.max_groups, "max.num.groups"),
    ):
        joined.add_argument(
            f"--{flag}", type=int, metavar="N", default=default, help=f"{_PLAN}.{key} (default: {default})"
        )
    joined.add_argument("--partition-regex", metavar="REGEX", help=f"{_PLAN}.partition.regex.pattern")


def add_process(run: argparse.ArgumentParser) -> None:
    """The flags of ``tagstream services run``."""
    run.add_argument("--target-base-path", metavar="PATH", required=True, help="base path of the table")
    run.add_argument(
        "--props",
        metavar="FILE",
        action="append",
        default=[],
        help="the job's properties file, for its keys of services",
    )
    run.add_argument(
        "--hoodie-conf", metavar="KEY=VALUE", action="append", default=[], help="one property; may be repeated"
    )
    run.add_argument("--once", action="store_true", help="end when there is nothing to do, and at the first error")
    run.add_argument("--poll-seconds", type=float, metavar="S", default=5.0, help="between two looks (default: 5)")
    run.add_argument("--processes", type=int, metavar="N", help="tasks side by side (default: one a core)")
