"""``tagstream table`` commands that change a table, with the writer lease and the table's lock.

clean, archive, savepoint, savepoints, restore, rollback, delete-partition and ttl are in this file. compact,
cluster, insert-overwrite and dedup have their own files.
"""

from __future__ import annotations

import argparse

from tagstream.cli.command import Clock, Command, add_table
from tagstream.cli.exclusive import Check, opened, props_of, under_lock
from tagstream.cli.output import Column, Fact, Output
from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.options import ttl_of
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.archiving import archive_table, plan_archive
from tagstream.table.services.cleaning import clean, pending_cleans
from tagstream.table.services.cleaning_plan import plan_table
from tagstream.table.services.options import (
    DAYS_KEY,
    ArchiveOptions,
    CleanOptions,
    CleanPolicy,
    TtlOptions,
    check_retention,
)
from tagstream.table.services.replaced_partitions import (
    delete_expired,
    delete_partitions,
    expired_partitions,
    groups_of_partitions,
)
from tagstream.table.services.restore import plan_restore, restore
from tagstream.table.services.rollback_completed import plan_rollback_completed, rollback_completed
from tagstream.table.services.savepoint import create_savepoint, delete_savepoint, plan_savepoint
from tagstream.table.timeline.timeline import savepoints

_INSTANTS = (Column("instant", "instant", "name"), Column("action", "action", "name"))
_CLEANED = (
    Column("partition_path", "partition"),
    Column("files", "files", "count"),
    Column("bytes", "bytes", "bytes"),
    Column("names", "", json_only=True),
)
_SAVEPOINTS = (
    Column("instant", "instant", "name"),
    Column("user", "made by"),
    Column("made_ms", "made at (ms)", "name"),
    Column("files", "files", "count"),
    Column("comment", "comment"),
)
_GROUPS = (Column("partition_path", "partition"), Column("file_groups", "file groups", "count"))
_EXPIRED = (Column("partition_path", "partition"),)
_FLAGS = {
    "hoodie.keep.min.commits": "--min-commits", "hoodie.keep.max.commits": "--max-commits",
    "hoodie.clean.commits.retained": "--commits",
}  # fmt: skip


def _add_retention(out: argparse.ArgumentParser) -> None:
    default = CleanOptions()
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


def _clean_options(arguments: argparse.Namespace) -> CleanOptions:
    policy = CleanPolicy(arguments.policy)
    return CleanOptions(policy, arguments.commits, arguments.hours, arguments.file_versions)


def _show_clean(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> None:
    plan = plan_table(table, _clean_options(arguments), clock_ms(), due=False)
    files = plan.files if plan is not None else {}
    out.facts(
        [
            Fact("pending", "plans to be executed first", list(pending_cleans(table.timeline()))),
            Fact("earliest", "earliest commit kept", plan.earliest.time if plan and plan.earliest else None),
            Fact("files", "files to delete", sum(map(len, files.values())), "count"),
            Fact("bytes", "bytes to delete", plan.size if plan is not None else 0, "bytes"),
            Fact("deleted_partitions", "partitions to delete", list(plan.partitions) if plan is not None else []),
        ]
    )
    rows = ((p, len(old), sum(f.size for f in old), [f.name for f in old]) for p, old in sorted(files.items()))
    out.listing("partitions", _CLEANED, rows)


def _clean(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    done = clean(table, _clean_options(arguments), clock_ms, check)
    out.facts(
        [
            Fact("instants", "cleans", list(done.instants) if done else []),
            Fact("earliest", "earliest commit kept", done.earliest if done else None),
            Fact("files", "files deleted", len(done.deleted) if done else 0, "count"),
            Fact("deleted_partitions", "partitions deleted", list(done.partitions) if done else []),
        ]
    )
    return done is not None


def _add_archive(out: argparse.ArgumentParser) -> None:
    archiving = ArchiveOptions()
    for name, default, text in (
        ("min", archiving.min_commits, "commits to keep on the timeline (hoodie.keep.min.commits)"),
        ("max", archiving.max_commits, "archive if there are more commits (hoodie.keep.max.commits)"),
    ):
        out.add_argument(
            f"--{name}-commits", type=int, metavar="N", default=default, help=f"{text} (default: {default})"
        )
    _add_retention(out)


def _archive_options(arguments: argparse.Namespace) -> tuple[ArchiveOptions, CleanOptions]:
    """The options; ConfigError, with the command's flag names, when the numbers contradict each other."""
    cleaning = _clean_options(arguments)
    try:
        options = ArchiveOptions(arguments.min_commits, arguments.max_commits)
        check_retention(options, cleaning)
    except ConfigError as e:
        text = str(e)
        for key, flag in _FLAGS.items():
            text = text.replace(key, flag)
        raise ConfigError(text) from e
    return options, cleaning


def _show_archive(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> None:
    chosen = plan_archive(table, *_archive_options(arguments), clock_ms)
    out.listing("actions", _INSTANTS, ((i.time, i.action) for i in chosen))


def _archive(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    done = archive_table(table, *_archive_options(arguments), clock_ms, check)
    out.listing("actions", _INSTANTS, ((i.time, i.action) for i in done.instants) if done else ())
    return done is not None


def _savepoints(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
    table = opened(arguments, out)
    rows = [
        (s.time, s.user, s.made_ms, sum(map(len, s.files.values())), s.comment)
        for s in reversed(savepoints(table.storage, table.timeline()))
    ]
    out.listing("savepoints", _SAVEPOINTS, rows)
    return 0


def _add_savepoint(out: argparse.ArgumentParser) -> None:
    out.add_argument("--instant", metavar="T", help="the completed commit (default: the newest)")
    out.add_argument(
        "--delete", action="store_true", help="delete the savepoint of --instant, so that cleans may delete its files"
    )
    out.add_argument(
        "--user", metavar="NAME", default="tagstream", help="the user in the savepoint (default: tagstream)"
    )
    out.add_argument("--comment", metavar="TEXT", default="", help="the comment in the savepoint")


def _show_savepoint(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> None:
    if arguments.delete:
        out.facts([Fact("instant", "savepoint", arguments.instant, "name")])
        return
    made = plan_savepoint(table, arguments.instant, arguments.user, arguments.comment, clock_ms)
    files = sum(map(len, made.files.values()))
    out.facts([Fact("instant", "commit", made.time, "name"), Fact("files", "files kept", files, "count")])


def _savepoint(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    if arguments.delete:
        if arguments.instant is None:
            raise ConfigError("--delete needs --instant: name the savepoint to delete")
        delete_savepoint(table, arguments.instant, check)
        out.facts([Fact("instant", "savepoint deleted", arguments.instant, "name")])
        return True
    made = create_savepoint(table, arguments.instant, arguments.user, arguments.comment, clock_ms, check)
    files = sum(map(len, made.files.values()))
    out.facts([Fact("instant", "savepoint", made.time, "name"), Fact("files", "files kept", files, "count")])
    return True


def _add_restore(out: argparse.ArgumentParser) -> None:
    out.add_argument("--savepoint", metavar="T", required=True, help="the savepoint's commit")


def _show_restore(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    plan = plan_restore(table, arguments.savepoint)
    out.facts([Fact("metadata_partitions", "metadata table dropped", list(plan.metadata))])
    out.listing("undone", _INSTANTS, ((i.time, i.action) for i in plan.instants))


def _restore(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    done = restore(table, arguments.savepoint, clock_ms, check)
    out.facts(
        [
            Fact("instant", "restore", done.instant, "name"),
            Fact("undone", "commits rolled back", list(done.undone)),
            Fact("files", "files deleted", len(done.deleted), "count"),
            Fact("metadata_partitions", "metadata table dropped", list(done.metadata)),
        ]
    )
    if done.metadata:
        out.note(
            "the metadata table was dropped; a job with hoodie.metadata.enable=true builds it again at its next start"
        )
    return True


def _add_rollback(out: argparse.ArgumentParser) -> None:
    out.add_argument("--instant", metavar="T", required=True, help="the commit, which must be the newest")


def _show_rollback(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    plan = plan_rollback_completed(table, arguments.instant)
    out.facts(
        [
            Fact("instant", "commit", plan.instant.time, "name"),
            Fact("files", "files deleted", sum(len(r.files) for r in plan.requests), "count"),
            Fact(
                "log_files", "log files with a rollback block", sum(len(r.log_blocks) for r in plan.requests), "count"
            ),
            Fact("drops_metadata", "metadata table dropped", plan.drops_metadata),
        ]
    )


def _rollback(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    done = rollback_completed(table, arguments.instant, clock_ms, check)
    out.facts(
        [
            Fact("instant", "rollback", done.instant, "name"),
            Fact("files", "files deleted", len(done.deleted), "count"),
            Fact("log_files", "log files with a rollback block", len(done.blocks), "count"),
        ]
    )
    return True


def _add_delete(out: argparse.ArgumentParser) -> None:
    out.add_argument(
        "--partition", metavar="PATH", action="append", required=True, help="partition path; may be repeated"
    )


def _show_delete(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    found = groups_of_partitions(table, arguments.partition)
    out.listing("partitions", _GROUPS, ((p, len(ids)) for p, ids in found.items()))


def _delete(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    table.check_writable(keeps_metadata=True)
    instant = delete_partitions(table, arguments.partition, clock_ms, check)
    out.facts([Fact("instant", "commit", instant, "name")])
    return instant is not None


def _add_ttl(out: argparse.ArgumentParser) -> None:
    out.add_argument("--days", type=int, metavar="N", help=f"age in days ({DAYS_KEY} of --props otherwise)")


def _ttl_options(arguments: argparse.Namespace) -> TtlOptions:
    own = [] if arguments.days is None else [f"{DAYS_KEY}={arguments.days}"]
    return ttl_of(entries_of(props_of(arguments), [*arguments.hoodie_conf, *own]))


def _show_ttl(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> None:
    found = expired_partitions(table, _ttl_options(arguments), clock_ms())
    groups = groups_of_partitions(table, found.partitions)
    out.listing("partitions", _GROUPS, ((path, len(groups[path])) for path in found.partitions))


def _ttl(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    table.check_writable(keeps_metadata=True)
    instant, found = delete_expired(table, _ttl_options(arguments), clock_ms, check)
    out.listing("partitions", _EXPIRED, ((path,) for path in found.partitions))
    out.facts([Fact("instant", "commit", instant, "name")])
    return instant is not None


COMMANDS = (
    under_lock(
        "clean",
        "delete the files of old slices, by the options hoodie.clean.*",
        _add_retention,
        _show_clean,
        _clean,
    ),
    under_lock(
        "archive",
        "move old actions from the active timeline to the archive, by the options hoodie.keep.*",
        _add_archive,
        _show_archive,
        _archive,
    ),
    Command("table", "savepoints", "the savepoints, newest first", add_table, _savepoints),
    under_lock(
        "savepoint",
        "keep the table as of a commit until the savepoint is deleted",
        _add_savepoint,
        _show_savepoint,
        _savepoint,
    ),
    under_lock(
        "restore",
        "restore the table to a savepoint: all later commits are rolled back",
        _add_restore,
        _show_restore,
        _restore,
    ),
    under_lock("rollback", "roll back the newest completed commit", _add_rollback, _show_rollback, _rollback),
    under_lock(
        "delete-partition",
        "delete all rows of partitions; a later clean deletes their files",
        _add_delete,
        _show_delete,
        _delete,
    ),
    under_lock(
        "ttl",
        "delete all rows of partitions that are older than some days, by the options hoodie.partition.ttl.*",
        _add_ttl,
        _show_ttl,
        _ttl,
    ),
)
