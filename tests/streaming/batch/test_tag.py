"""What the stateful step looks at before it hands a key group's state to Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.tag import TagSpec, read_profile
from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.process import CrashPlan
from tagstream.table.errors import InstantConflictError, TableNotFoundError
from tagstream.table.services.rollback import rollback
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tagstream.table.write import commit
from tests.state.tagging import make_profile
from tests.table.writer import Writer


def spec_of(durable: Storage, folder: Path, storage: Storage, timeline_folder: str, action: str) -> TagSpec:
    """``durable``: of the checkpoint, ``storage``: of the table."""
    return TagSpec(
        layout=StateLayout(durable, str(folder / "local")),
        profiles=durable,
        run=1,
        run_owner="",
        crash=CrashPlan(),
        write_tasks=1,
        storage=storage,
        timeline_folder=timeline_folder,
        action=action,
    )


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_only_a_pending_instants_state_is_handed_on(tmp_path: Path, table_type: str) -> None:
    writer = Writer.create(tmp_path, table_type)
    table, instant = writer.table, writer.instant()
    durable = PosixStorage(str(tmp_path / "durable"))
    spec = spec_of(durable, tmp_path, table.storage, table.config.timeline_folder, writer.action)
    profile = make_profile(0, instant=instant)
    commit.request(table, instant, writer.action)
    commit.inflight(table, instant, writer.action)
    spec.check_pending(profile)
    rollback(table, instant, writer.instant())
    with pytest.raises(InstantConflictError, match=f"another process rolled back instant {instant} of "):
        spec.check_pending(profile)
    spec.check_pending(replace(profile, mode="replay"))  # of a commit: its instant is completed


def test_a_host_that_does_not_share_the_drivers_folders_says_so(tmp_path: Path) -> None:
    """And is not taken for one whose batch another writer has rolled back, which would be tried again for ever."""
    nowhere = PosixStorage(str(tmp_path / "nowhere"))
    spec = spec_of(nowhere, tmp_path, nowhere, ".hoodie", "deltacommit")
    with pytest.raises(
        TableNotFoundError, match=f"finds no table at {nowhere.root}: .* accessible to all of Spark's hosts"
    ):
        spec.check_pending(make_profile(0))
    with pytest.raises(
        CheckpointError, match=f"cannot find the write profile {nowhere.root}/.* where all hosts of Spark"
    ):
        read_profile(spec, 0)
