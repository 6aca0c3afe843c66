"""Commands that change a table, and what they hold: the writer lease, and the table's lock.

The lease excludes all other processes of this project for the whole command. The lock, if the properties name one,
excludes Hudi's writers while something is planned or published, and not while data is written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tagstream.cli.command import Clock, Command, add_lock_settings, add_table
from tagstream.cli.output import Fact, Output
from tagstream.cli.table_health import readable
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.options import lock_of
from tagstream.table.errors import ConfigError
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.opened import open_table_lock
from tagstream.table.locks.options import LockOptions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.partitions import drop_unwritable
from tagstream.table.services.failed_writes import sweep

Check = Callable[[], None]


@dataclass(frozen=True)
class Exclusive:
    """The lease of a command, and the lock of its table."""

    lease: LeaseKeeper
    lock: TableLock

    def check(self) -> None:
        """Before a step that cannot be undone: LeaseLostError without the lease, LockLostError if a lock was lost."""
        self.lease.check()
        if self.lock.is_entered:
            self.lock.check()

    def hold(self, what: str) -> AbstractContextManager[None]:
        """Hold the table's lock for a ``with`` block. ``what``: what is done under it, for messages."""
        return self.lock.hold(what)


@contextmanager
def holding_lease(table: HoodieTable, clock_ms: Clock, label: str) -> Iterator[LeaseKeeper]:
    """Hold the table's writer lease inside the block. ``label``: the command. LeaseLostError names the job that holds it."""
    lease = LeaseKeeper(table.storage, clock_ms)
    try:
        lease.acquire(f"tagstream {label}")
        yield lease
    finally:
        lease.release()


@contextmanager
def exclusive(table: HoodieTable, arguments: argparse.Namespace, clock_ms: Clock, label: str) -> Iterator[Exclusive]:
    """Hold the lease inside the block, with the lock that the properties of ``arguments`` name. ``label``: the command.

    ConfigError for properties of a lock that do not fit, LeaseLostError as :func:`holding_lease`.
    """
    lock = command_lock(table, arguments, clock_ms, label)
    try:
        with holding_lease(table, clock_ms, label) as lease:
            yield Exclusive(lease, lock)
    finally:
        lock.close()


def props_of(arguments: argparse.Namespace) -> list[str]:
    """The properties files that a command was given."""
    props = arguments.props or []
    return [props] if isinstance(props, str) else props


def command_lock(table: HoodieTable, arguments: argparse.Namespace, clock_ms: Clock, label: str) -> TableLock:
    """The lock that the properties name, for the other writers of the table; one for this process if they name none."""
    options: LockOptions = lock_of(entries_of(props_of(arguments), arguments.hoodie_conf))
    return open_table_lock(
        options,
        table.config.name,
        arguments.target_base_path,
        table.storage,
        who=f"tagstream {label}",
        clock_ms=clock_ms,
        env=os.environ,
    )


Show = Callable[[HoodieTable, argparse.Namespace, Output, Clock], None]
Act = Callable[[HoodieTable, argparse.Namespace, Output, Clock, Exclusive], bool]
ActUnderLock = Callable[[HoodieTable, argparse.Namespace, Output, Clock, Check], bool]


def changing(
    name: str, text: str, add_flags: Callable[[argparse.ArgumentParser], None], show: Show, act: Act
) -> Command:
    """A command that changes a table. ``show`` shows what it would do (--dry-run), ``act`` does it (--yes).

    ``act`` returns whether it changed something. It holds the lock itself, while it plans and while it publishes.
    """

    def add(out: argparse.ArgumentParser) -> None:
        add_table(out)
        out.add_argument("--dry-run", action="store_true", help="show what the command would do, and change nothing")
        out.add_argument("--yes", action="store_true", help="do it; no other writer may run on the table")
        add_lock_settings(out)
        add_flags(out)

    def run(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
        table = opened(arguments, out)
        if arguments.dry_run:
            show(readable(table, out), arguments, out, clock_ms)
            out.facts([Fact("changed", "changed", False)])
            out.note("nothing was changed; replace --dry-run by --yes to do it")
            return 0
        if not arguments.yes:
            raise ConfigError(
                f"{name} changes table {table.config.name} at {table.base_path}: check what it would do with --dry-run, "
                "then give --yes"
            )
        with exclusive(table, arguments, clock_ms, f"table {name}") as alone:
            with alone.hold(f"table {name}"):
                table, told = drop_unwritable(table, clock_ms())
            if told:
                out.facts([Fact("metadata_dropped", "before it", list(told))])
            done = act(table, arguments, out, clock_ms, alone)
            alone.check()
            sweep(table.reload())  # files of a command that was killed after its commit
        out.facts([Fact("changed", "changed", done)])
        return 0

    return Command("table", name, text, add, run)


def under_lock(
    name: str, text: str, add_flags: Callable[[argparse.ArgumentParser], None], show: Show, act: ActUnderLock
) -> Command:
    """As :func:`changing`, for work that takes little time: the whole of ``act`` is under the lock."""

    def locked(
        table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, alone: Exclusive
    ) -> bool:
        with alone.hold(f"table {name}"):
            return act(table, arguments, out, clock_ms, alone.check)

    return changing(name, text, add_flags, show, locked)


def opened(arguments: argparse.Namespace, out: Output) -> HoodieTable:
    """The table of a command, with its name and place as the first facts of the output."""
    table = HoodieTable.open(arguments.target_base_path)
    out.facts([Fact("table", "table", table.config.name), Fact("base_path", "path", table.base_path)])
    return table
