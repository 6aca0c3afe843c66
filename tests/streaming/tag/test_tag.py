"""What the stateful step looks at before it hands a key group's state to Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.state.layout import StateLayout
from tagstream.streaming.crash import CrashPlan
from tagstream.streaming.tag.tag import TagSpec
from tagstream.table.errors import InstantConflictError
from tagstream.table.services.rollback import rollback
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.write import commit
from tests.state.tagging import make_profile
from tests.table.writer import Writer


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_only_a_pending_instants_state_is_handed_on(tmp_path: Path, table_type: str) -> None:
    writer = Writer.create(tmp_path, table_type)
    table, instant = writer.table, writer.instant()
    durable = PosixStorage(str(tmp_path / "durable"))
    spec = TagSpec(
        layout=StateLayout(durable, str(tmp_path / "local")),
        profiles=durable,
        run=1,
        run_owner="",
        crash=CrashPlan(),
        lanes=1,
        storage=table.storage,
        timeline_folder=table.config.timeline_folder,
        action=writer.action,
    )
    profile = make_profile(0, instant=instant)
    commit.request(table, instant, writer.action)
    commit.inflight(table, instant, writer.action)
    spec.check_pending(profile)
    rollback(table, instant, writer.instant())
    with pytest.raises(InstantConflictError, match=f"instant {instant} of .* was rolled back by another process"):
        spec.check_pending(profile)
    spec.check_pending(replace(profile, mode="replay"))  # of a commit: its instant is completed
