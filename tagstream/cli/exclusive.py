"""What a command that changes a table holds: the writer lease, and the table's lock.

The lease excludes all other processes of this project for the whole command. The lock, if the properties name one,
excludes Hudi's writers while something is planned or published, and not while data is written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tagstream.cli.command import Clock
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.options import lock_of
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.opened import open_table_lock
from tagstream.table.locks.options import LockOptions
from tagstream.table.meta_client.hoodie_table import HoodieTable


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
