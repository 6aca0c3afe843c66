"""`tagstream table dedup`: keys that another writer has put into the table again, in all places; the newest row stays."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tagstream.bootstrap.catch_up import catch_up_index, plan_catch_up
from tagstream.bootstrap.run import bootstrap_index
from tagstream.streaming.source.decode.make_format import PLAIN
from tagstream.table.services.validate import validate
from tagstream.table.write.write_context import WriteProfile
from tests.cli.running import run, run_json
from tests.streaming.pipeline import LABELS, Pipeline
from tests.support import cdc
from tests.support import events as ev
from tests.support.foreign_writer import ForeignWriter, _done
from tests.support.hudi_rs import read_table


def message(offset: int, event: ev.Event) -> cdc.Message:
    return cdc.Message(0, offset, None, json.dumps(event.row()).encode(), {})


def again(run: Pipeline, folder: Path) -> Pipeline:
    """Another writer, which knows none of the table's keys."""
    layout = replace(run.layout, durable=run.layout.durable.below("other"), local_dir=str(folder / "other"))
    return replace(
        run, layout=layout, pointers={}, table=run.table.reload(), batch_id=50, now_ms=run.now_ms + 5000, counts={}
    )


def doubled(folder: Path, table_type: str) -> Pipeline:
    """k0 to k5 of p0 are there twice (k0: the older row was written last), k6 in two partitions, k7 twice in one file."""
    made = Pipeline.create(folder, table_type, json.dumps(ev.AVRO_SCHEMA), ["id"], ["part"], PLAIN, ["ts"])
    first = [ev.Event(f"k{n}", "p0", 30 if n == 0 else 10, name="first") for n in range(7)]
    made.batch([message(n, e) for n, e in enumerate([*first, ev.Event("k9", "p3", 1, name="alone")])])
    other = again(made, folder)
    second = [ev.Event(f"k{n}", "p0", 20, name="second") for n in range(6)]
    other.batch([message(n, e) for n, e in enumerate([*second, ev.Event("k6", "p1", 20, name="second")])])
    writer = ForeignWriter(folder / "t")
    table, _ = writer._look()
    rows = [(ev.Event("k7", "p2", at, name=name), True) for at, name in ((10, "first"), (20, "second"))]
    _done(writer._hold(table, {("p2", writer._group("p2")): rows}, {}))
    made.table, made.now_ms = made.table.reload(), made.now_ms + 20_000
    return made


def found(folder: Path) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["part"], r["ts"], r["name"]) for r in read_table(folder / "t").to_pylist())


KEPT = [
    ("k0", "p0", 30, "first"),
    *((f"k{n}", "p0", 20, "second") for n in range(1, 6)),
    ("k6", "p1", 20, "second"),
    ("k7", "p2", 20, "second"),
    ("k9", "p3", 1, "alone"),
]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_the_newest_row_of_a_key_stays(
    tmp_path: Path, table_type: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.support.foreign_writer.lists_base_files", lambda _: True)
    made = doubled(tmp_path, table_type)
    assert len(found(tmp_path)) == 9 + 8
    at = ("--target-base-path", tmp_path / "t")
    run("table", "dedup", *at, code=2)
    dry = run_json("table", "dedup", *at, "--dry-run")
    assert (dry["surplus"], dry["changed"], len(found(tmp_path))) == (8, False, 17)
    by_partition = run_json("table", "dedup", *at, "--dry-run", "--by-partition")
    assert by_partition["surplus"] == 7, "k6 is there once in each of two partitions"
    # The index of a stream knows one place of each key; it follows what the command does.
    made.pointers = {}

    def clock_ms() -> int:
        made.now_ms += 7
        return made.now_ms

    kind = made.spec.ordering_type
    loaded = bootstrap_index(made.table, made.layout, LABELS, 1, clock_ms=clock_ms, ordering_type=kind, first_batch=1)
    assert loaded.twice == 8
    done = run_json("table", "dedup", *at, "--yes")
    assert (done["surplus"], done["changed"]) == (8, True)
    assert {p["partition_path"]: (p["rows"], p["kept"]) for p in done["partitions"]} == {
        "p0": (13, 6), "p1": (1, 1), "p2": (2, 1)
    }  # fmt: skip
    assert found(tmp_path) == KEPT
    made.table = made.table.reload()
    assert validate(made.table) == []
    assert run_json("table", "dedup", *at, "--yes")["changed"] is False

    made.now_ms = max(made.now_ms, 2_000_000_000_000)
    plan = plan_catch_up(made.table, (done["instant"],))
    catch_up_index(made.table, plan, made.layout, LABELS, 1, 1, clock_ms=clock_ms, ordering_type=kind, first_batch=1)
    monkeypatch.setattr("tests.streaming.pipeline.WriteProfile", partial(WriteProfile, index_load=1, catch_up=1))
    events = [
        ev.Event("k0", "p0", 25, name="late"), ev.Event("k1", None, 40, deleted=True), ev.Event("k6", "p0", 40, name="new"),
        ev.Event("k7", "p2", 40, name="new"),
    ]  # fmt: skip
    made.batch([message(100 + n, e) for n, e in enumerate(events)])
    assert found(tmp_path) == [
        KEPT[0], *KEPT[2:6], ("k6", "p0", 40, "new"), ("k7", "p2", 40, "new"), KEPT[8]
    ]  # fmt: skip
