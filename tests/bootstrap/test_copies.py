"""Keys that other writers put into the table again: what the stream does to such a key reaches all of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tagstream.bootstrap.catch_up import catch_up_index, plan_catch_up
from tagstream.bootstrap.run import bootstrap_index
from tagstream.state.durable_files import Pointer
from tagstream.state.index_loads import starting_pointer
from tagstream.state.local_store import open_at
from tagstream.state.store_entries import all_copies
from tagstream.streaming.source.decode.make_format import PLAIN
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.validate import validate
from tagstream.table.write.write_context import WriteProfile
from tests.streaming.pipeline import LABELS, Pipeline
from tests.support import cdc
from tests.support import events as ev
from tests.support.hudi_rs import read_table

KEYS = 6


def write(run: Pipeline, *events: ev.Event) -> None:
    run.batch([cdc.Message(0, n, None, json.dumps(e.row()).encode(), {}) for n, e in enumerate(events)])
    run.table = run.table.reload()


def write_again(run: Pipeline, folder: Path, at: int, partition: str = "p0") -> str:
    """Another writer, which looks no key up, commits all keys; its instant."""
    layout = replace(run.layout, durable=run.layout.durable.below(f"other{at}"), local_dir=str(folder / f"other{at}"))
    other = replace(run, layout=layout, pointers={}, batch_id=50 + at, now_ms=run.now_ms + 5000, counts={})
    write(other, *(ev.Event(f"k{n}", partition, at, name="again") for n in range(KEYS)))
    run.table, run.now_ms = run.table.reload(), other.now_ms + 5000
    newest = run.table.timeline().newest_completed
    assert newest is not None
    return newest


def clock(run: Pipeline) -> Callable[[], int]:
    def clock_ms() -> int:
        run.now_ms += 7
        return run.now_ms

    return clock_ms


def caught_up(run: Pipeline, catch_up: int, *instants: str) -> None:
    plan = plan_catch_up(run.table, instants)
    catch_up_index(
        run.table, plan, run.layout, LABELS, 0, catch_up, clock_ms=clock(run), ordering_type=run.spec.ordering_type,
        first_batch=run.batch_id,
    )  # fmt: skip


def found(folder: Path) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["part"], r["ts"], r["name"]) for r in read_table(folder / "t").to_pylist())


def copies(run: Pipeline) -> dict[bytes, tuple[int, ...]]:
    """What the key groups know of other places."""
    known: dict[bytes, tuple[int, ...]] = {}
    for label, pointer in run.pointers.items():
        # A group without a pointer has changed nothing since the load.
        at = starting_pointer(run.layout, 1, label) if pointer is None else Pointer.from_bytes(pointer, label)
        store, meta = open_at(run.layout, label, at)
        with store:
            own = dict(all_copies(store))
        assert meta.copies == len(own)
        known |= own
    return known


TAKEN = (
    ev.Event("k0", "p0", 90, name="new"),
    ev.Event("k1", None, 90, deleted=True),
    ev.Event("k2", "p9", 90, name="moved"),
    ev.Event("k3", "p0", 5, name="late"),
    ev.Event("k4", None, 5, deleted=True),
)


def check(run: Pipeline, folder: Path, rows: list[tuple[Any, ...]]) -> None:
    """``rows``: of k3, k4 and k5 before, which nothing changes."""
    write(run, *TAKEN)
    assert found(folder) == [("k0", "p0", 90, "new"), ("k2", "p9", 90, "moved"), *rows]
    assert {key[1:].decode() for key in copies(run)} == {"k3", "k4", "k5"}
    write(run, *(ev.Event(f"k{n}", "p0", 95, name="last") for n in range(1, KEYS)))
    assert found(folder) == [("k0", "p0", 90, "new"), *((f"k{n}", "p0", 95, "last") for n in range(1, KEYS))]
    assert copies(run) == {}
    assert validate(run.table) == []


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    made = Pipeline.create(tmp_path, request.param, json.dumps(ev.AVRO_SCHEMA), ["id"], ["part"], PLAIN, ["ts"])
    write(made, *(ev.Event(f"k{n}", "p0", 10, name="first") for n in range(KEYS)))
    return made


def test_an_index_that_is_loaded(run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_again(run, tmp_path, 20)
    write_again(run, tmp_path, 30, "p1")
    kind = run.spec.ordering_type
    loaded = bootstrap_index(
        run.table, run.layout, LABELS, 1, clock_ms=clock(run), ordering_type=kind, first_batch=run.batch_id
    )
    assert loaded.twice == KEYS
    run.pointers = {}
    monkeypatch.setattr("tests.streaming.pipeline.WriteProfile", partial(WriteProfile, index_load=1))
    rows = [(f"k{n}", *r) for n in (3, 4, 5) for r in (("p0", 10, "first"), ("p0", 20, "again"), ("p1", 30, "again"))]
    check(run, tmp_path, rows)


@pytest.mark.parametrize("at_once", [True, False])
def test_an_index_that_catches_up(
    run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """With both commits of others in one epoch, or in two."""
    first = write_again(run, tmp_path, 20)
    if at_once:
        caught_up(run, 1, first, write_again(run, tmp_path, 30, "p1"))
    else:
        caught_up(run, 1, first)
        caught_up(run, 2, write_again(run, tmp_path, 30, "p1"))
    monkeypatch.setattr("tests.streaming.pipeline.WriteProfile", partial(WriteProfile, catch_up=1 if at_once else 2))
    rows = [(f"k{n}", *r) for n in (3, 4, 5) for r in (("p0", 10, "first"), ("p0", 20, "again"), ("p1", 30, "again"))]
    check(run, tmp_path, rows)


def test_rows_that_a_clustering_moved(run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught_up(run, 1, write_again(run, tmp_path, 20, "p1"))
    instant = schedule_clustering(run.table, ClusteringOptions(max_commits=1), clock(run), force=True)
    assert instant is not None
    cluster(run.table, instant, clock(run))
    run.table = run.table.reload()
    caught_up(run, 2, instant)
    monkeypatch.setattr("tests.streaming.pipeline.WriteProfile", partial(WriteProfile, catch_up=2))
    rows = [(f"k{n}", *r) for n in (3, 4, 5) for r in (("p0", 10, "first"), ("p1", 20, "again"))]
    check(run, tmp_path, rows)
