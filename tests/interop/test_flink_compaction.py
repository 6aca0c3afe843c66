"""A compaction that Hudi's Flink writer plans and leaves to others is carried out here; Hudi on Spark reads the result."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.writers.case import HUDI_FLINK, INDEXES, Writer
from bench.writers.command import command, environment
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.validate import validate
from tests.interop.hudi_spark import HudiSpark
from tests.support.hudi_rs import read_table
from tests.table.services.compaction_compacting import ALL, free_clock, plans, slices_with_logs
from tests.table.services.test_compaction_real_tables import settled

pytestmark = pytest.mark.hudi_jar
COLUMNS = {"id": "string", "part": "string", "ts": "long", "name": "string"}
KEYS, BATCHES = 40, 4


def batches(folder: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Files of events, each a batch: new keys, updates, moves; and the rows that are then there."""
    live: dict[str, dict[str, Any]] = {}
    files = []
    for number in range(BATCHES):
        chosen = range(0, KEYS, number + 1)
        events = [{"id": f"k{key}", "part": f"p{(key + key // 30 * number) % 3}", "ts": 100 + number, "name": f"n{number}"}
                  for key in chosen]  # fmt: skip
        live |= {event["id"]: event for event in events}
        file = folder / f"{number}.json"
        file.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
        files.append(str(file))
    return files, live


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """A table that Flink wrote, with a plan after two of its commits that nobody carries out."""
    folder = tmp_path_factory.mktemp("flink")
    files, live = batches(folder)
    order = {
        "table": str(folder / "table"), "events": str(folder / "events.jsonl"), "work": str(folder / "work"), "name": "t",
        "table_type": "MERGE_ON_READ", "columns": list(COLUMNS), "types": list(COLUMNS.values()), "files": files,
        "options": {"compaction.schedule.enabled": "true", "compaction.delta_commits": "2"},
    }  # fmt: skip
    path = folder / "order.json"
    path.write_text(json.dumps(order))
    flink = Writer(HUDI_FLINK, INDEXES[HUDI_FLINK][0])
    done = subprocess.run(command(flink, path), env=environment(flink), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "table", live


def test_flinks_plan_is_carried_out(
    planned: tuple[Path, dict[str, dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, live = planned
    table, tick = HoodieTable.open(str(path)), free_clock()

    def rows() -> dict[str, dict[str, Any]]:
        found = read_snapshot(table.reload(), list(COLUMNS)).to_pylist()
        assert len(found) == len(live)
        return {row["id"]: row for row in found}

    assert rows() == live
    pending = plans(table)
    assert pending, "Flink has planned nothing"
    for plan in pending:
        result = compact(table, plan.time, tick)
        assert result.statuses
        assert rows() == live
    assert [problem for problem in validate(table) if "unfinished" not in problem] == []
    settled(table)  # Flink begins an instant behind each commit; on version 6 no plan is made beside it
    with HudiSpark("0.15.0", tmp_path_factory.mktemp("hudi")) as hudi:
        for step in ("carried out", "compacted again"):
            found = {row["id"]: row for row in hudi.read(path).select(list(COLUMNS)).to_pylist()}
            assert found == live, step
            assert read_table(str(path)).num_rows == len(live)
            instant = schedule_compaction(table, ALL, tick, force=True)
            if instant is not None:
                compact(table, instant, tick)
    assert slices_with_logs(table) == []
    assert rows() == live
