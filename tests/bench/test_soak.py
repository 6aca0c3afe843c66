"""The soak's parts: its events and what they lead to, the rate, the growth it reports."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from bench.inputs.kafka_feed import at_rate
from bench.inputs.soak_events import FIRST_MS, SoakEvents, make_table
from bench.inputs.soak_samples import WARM_S, batches_of, bytes_below, memory_mib, slope, summary
from tagstream.streaming.batch.report import BatchReport, line
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

KEYS, COUNT = 300, 1_000


@pytest.mark.parametrize(
    ("inserts", "expected"),
    [(0.2, {"update": 600, "insert": 200, "move": 200}), (0.0, {"update": 750, "insert": 0, "move": 250})],
)
def test_the_events_lead_to_the_rows_they_say(tmp_path: Path, inserts: float, expected: dict[str, int]) -> None:
    events = SoakEvents(KEYS, 4, seed=5, inserts=inserts)
    loaded = {r["id"]: (r["part"], r["ts"]) for rows in events.rows() for r in rows.to_pylist()}
    assert len(loaded) == KEYS
    events.write(tmp_path / "events.tsv.zst", COUNT)
    with pa.input_stream(tmp_path / "events.tsv.zst", compression="zstd") as f:
        lines = f.read().decode().splitlines()
    assert len(lines) == COUNT
    for sent in (0, 1, 450, COUNT):
        rows = dict(loaded)
        kinds = {"update": 0, "insert": 0, "move": 0}
        for text in lines[:sent]:
            key, _, value = text.partition("\t")
            event = json.loads(value)
            assert event["id"] == key
            before = rows.get(key)
            kinds["insert" if before is None else "update" if before[0] == event["part"] else "move"] += 1
            assert before is None or event["ts"] > before[1]
            rows[key] = (event["part"], event["ts"])
        found = {r["id"]: (r["part"], r["ts"]) for r in events.expected(sent).to_pylist()}
        assert found == rows
    assert kinds == expected


@pytest.mark.interop
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_the_table_holds_the_existing_rows(tmp_path: Path, table_type: str) -> None:
    events = SoakEvents(KEYS, 3, seed=6)
    make_table(tmp_path / "table", events, table_type, FIRST_MS)
    found = read_table(tmp_path / "table", meta_columns=False).select(["id", "part", "ts"])
    assert not (wrong := compare(events.expected(0), found, ["id"])), wrong


def test_records_come_at_the_rate() -> None:
    given: list[int] = []

    class Feed:
        def write(self, lines: bytes) -> None:
            given.append(len(lines))

    begun = time.monotonic()
    sent = at_rate(lambda n: b"x" * n, Feed(), rate=2_000, seconds=1.0)  # type: ignore[arg-type]
    assert sent == sum(given)
    assert 1_200 <= sent <= 2_000  # the last tick may be all that is missing, on a busy machine a little more
    assert len(given) >= 3
    assert time.monotonic() - begun >= 1.0


def sample(at: float, lag: int, jvm: float) -> dict[str, object]:
    return {"at": at, "lag": lag, "mib": {"driver": 150.0, "jvm": jvm, "workers": 400.0 - at / 60}}


def test_growth_is_told_from_noise_and_from_the_warm_up() -> None:
    steady = [sample(5.0 * n, 50_000 + (n % 2) * 30_000, 900.0 if 5 * n >= WARM_S else 300.0 + n) for n in range(120)]
    found = summary(steady, [{"batch": n, "records": 100, "seconds": 2.0 + n} for n in range(3)])
    assert abs(found["lag_slope"]) < 20
    assert found["memory_slope"] == {"driver": 0.0, "jvm": 0.0, "workers": -1.0}
    assert (found["lag_greatest"], found["batches"], found["batch_seconds"]) == (80_000, 3, 3.0)
    grown = summary([sample(5.0 * n, 500 * n, 900.0 + 0.5 * n) for n in range(120)], [])
    assert grown["lag_slope"] == pytest.approx(100.0)
    assert grown["memory_slope"]["jvm"] == pytest.approx(6.0)
    assert slope([1, 2], [1, 2]) is None


def test_batches_are_read_from_the_jobs_own_log() -> None:
    counts = dict.fromkeys(
        ("inserts", "updates", "deletes", "moves", "late", "superseded", "unknown_deletes", "quarantined"), 0
    )
    sizes = {"files": 3, "bytes": 5, "index_keys": 0, "index_tombstones": 0, "index_bytes": 0}
    report = BatchReport(7, "20260101000000000", False, 12_345, **counts, **sizes, seconds=2.34, phases={}, lag=None)
    log = f"starting\n2026 INFO tagstream: {line(report)}\n"
    assert batches_of(log) == [{"batch": 7, "records": 12_345, "seconds": 2.3}]


def test_memory_and_bytes_are_looked_at(tmp_path: Path) -> None:
    assert memory_mib(os.getpid())["driver"] > 10
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"12345")
    assert bytes_below(tmp_path) == 5
