"""``tagstream table`` commands that change a table, with the writer lease held.

clean, archive, savepoint, savepoints, restore, rollback and delete-partition are here. compact, cluster,
insert-overwrite and dedup start here and have files of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from tagstream.cli.compact_cluster import run_cluster, run_compact, show_cluster, show_compact
from tagstream.cli.insert_overwrite import run_dedup, run_overwrite, show_dedup, show_overwrite
from tagstream.cli.output import Column, Fact, Output
from tagstream.cli.table_health import readable
from tagstream.cli.upgrade import alone
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.partitions import drop_unwritable
from tagstream.table.services.archiving import archive_table, plan_archive
from tagstream.table.services.cleaning import clean, pending_cleans
from tagstream.table.services.cleaning_plan import plan_table
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CleanPolicy, check_retention
from tagstream.table.services.replaced_partitions import delete_partitions, groups_of_partitions
from tagstream.table.services.restore import plan_restore, restore
from tagstream.table.services.rollback_completed import plan_rollback_completed, rollback_completed
from tagstream.table.services.savepoint import create_savepoint, delete_savepoint, plan_savepoint
from tagstream.table.timeline.timeline import savepoints

Clock = Callable[[], int]
Check = Callable[[], None]

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


def run_services(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Show what a command would do, and with ``--yes`` do it; returns the exit code."""
    table = HoodieTable.open(arguments.target_base_path)
    out.facts([Fact("table", "table", table.config.name), Fact("base_path", "path", table.base_path)])
    command = arguments.command
    if command == "savepoints":
        rows = [
            (s.time, s.user, s.made_ms, sum(map(len, s.files.values())), s.comment)
            for s in reversed(savepoints(table.storage, table.timeline()))
        ]
        out.listing("savepoints", _SAVEPOINTS, rows)
        return 0
    show, act = _COMMANDS[command]
    if arguments.dry_run:
        show(readable(table, out), arguments, out, clock_ms)
        out.facts([Fact("changed", "changed", False)])
        out.note("nothing was changed; --yes in place of --dry-run does it")
        return 0
    if not arguments.yes:
        raise ConfigError(
            f"{command} changes table {table.config.name} at {table.base_path}: look at what it would do with --dry-run, "
            "then say --yes"
        )
    with alone(table, clock_ms, command) as lease:
        table, told = drop_unwritable(table, clock_ms())
        if told:
            out.facts([Fact("metadata_dropped", "before it", list(told))])
        done = act(table, arguments, out, clock_ms, lease.check)
        lease.check()
        sweep(table.reload())  # what a command left that was killed behind its commit
    out.facts([Fact("changed", "changed", done)])
    return 0


def _clean_options(arguments: argparse.Namespace) -> CleanOptions:
    policy = CleanPolicy(arguments.policy)
    return CleanOptions(policy, arguments.commits, arguments.hours, arguments.file_versions)


def _show_clean(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> None:
    plan = plan_table(table, _clean_options(arguments), clock_ms(), due=False)
    files = plan.files if plan is not None else {}
    out.facts(
        [
            Fact("pending", "plans to be carried out first", list(pending_cleans(table.timeline()))),
            Fact("earliest", "earliest commit kept", plan.earliest.time if plan and plan.earliest else None),
            Fact("files", "files that go", sum(map(len, files.values())), "count"),
            Fact("bytes", "bytes that go", plan.size if plan is not None else 0, "bytes"),
            Fact("deleted_partitions", "partitions that go", list(plan.partitions) if plan is not None else []),
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


_FLAGS = {
    "hoodie.keep.min.commits": "--min-commits", "hoodie.keep.max.commits": "--max-commits",
    "hoodie.clean.commits.retained": "--commits",
}  # fmt: skip


def _archive_options(arguments: argparse.Namespace) -> tuple[ArchiveOptions, CleanOptions]:
    """ConfigError in the words of the command where the numbers contradict one another."""
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
            raise ConfigError("--delete needs --instant: which savepoint is to be deleted")
        delete_savepoint(table, arguments.instant, check)
        out.facts([Fact("instant", "savepoint deleted", arguments.instant, "name")])
        return True
    made = create_savepoint(table, arguments.instant, arguments.user, arguments.comment, clock_ms, check)
    files = sum(map(len, made.files.values()))
    out.facts([Fact("instant", "savepoint", made.time, "name"), Fact("files", "files kept", files, "count")])
    return True


def _show_restore(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    plan = plan_restore(table, arguments.savepoint)
    out.facts([Fact("metadata_partitions", "metadata table dropped", list(plan.metadata))])
    out.listing("undone", _INSTANTS, ((i.time, i.action) for i in plan.instants))


def _restore(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    done = restore(table, arguments.savepoint, clock_ms, check)
    out.facts(
        [
            Fact("instant", "restore", done.instant, "name"),
            Fact("undone", "commits undone", list(done.undone)),
            Fact("files", "files deleted", len(done.deleted), "count"),
            Fact("metadata_partitions", "metadata table dropped", list(done.metadata)),
        ]
    )
    if done.metadata:
        out.note(
            "the metadata table was dropped; a job with hoodie.metadata.enable=true builds it anew at its next start"
        )
    return True


def _show_rollback(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    plan = plan_rollback_completed(table, arguments.instant)
    out.facts(
        [
            Fact("instant", "commit", plan.instant.time, "name"),
            Fact("files", "files deleted", sum(len(r.files) for r in plan.requests), "count"),
            Fact(
                "log_files", "log files taken back by a block", sum(len(r.log_blocks) for r in plan.requests), "count"
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
            Fact("log_files", "log files taken back by a block", len(done.blocks), "count"),
        ]
    )
    return True


def _show_delete(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    found = groups_of_partitions(table, arguments.partition)
    out.listing("partitions", _GROUPS, ((p, len(ids)) for p, ids in found.items()))


def _delete(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Check) -> bool:
    table.check_writable(keeps_metadata=True)
    instant = delete_partitions(table, arguments.partition, clock_ms, check)
    out.facts([Fact("instant", "commit", instant, "name")])
    return instant is not None


Show = Callable[[HoodieTable, argparse.Namespace, Output, Clock], None]
Act = Callable[[HoodieTable, argparse.Namespace, Output, Clock, Check], bool]
_COMMANDS: Final[dict[str, tuple[Show, Act]]] = {
    "compact": (show_compact, run_compact),
    "cluster": (show_cluster, run_cluster),
    "clean": (_show_clean, _clean),
    "archive": (_show_archive, _archive),
    "savepoint": (_show_savepoint, _savepoint),
    "restore": (_show_restore, _restore),
    "rollback": (_show_rollback, _rollback),
    "delete-partition": (_show_delete, _delete),
    "insert-overwrite": (show_overwrite, run_overwrite),
    "dedup": (show_dedup, run_dedup),
}
