"""Tagging with places that were looked up: decisions of one key group, without Spark."""

from __future__ import annotations

import json
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from tagstream.state.layout import OrderingKind, has_bytes
from tagstream.state.tag_batch import (
    FLAG_DELETE,
    FLAG_NO_ORDERING,
    FLAG_NO_PARTITION,
    GLOBAL_KEY,
    OP_INSERT,
    PARTITIONED_KEY,
)
from tagstream.streaming.batch.located import OP_BAD
from tagstream.streaming.batch.pull_tag import MOVED, PullSpec, Resolve, tag_pulled
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD
from tagstream.table.write.write_context import WriteProfile

PROFILE = WriteProfile("t", "q", 1, 1, "20260101000000000", 0, (0,))
OPS = {0: "insert", 1: "update", 2: "delete", 5: "delete"}
Located = list[tuple[str, str, str, str]]


def event(key: str, part: str | None, ts: int | None, flags: int = 0) -> tuple[str, str | None, int | None, int]:
    flags |= (FLAG_NO_PARTITION if part is None else 0) | (FLAG_NO_ORDERING if ts is None else 0)
    return key, part, ts, flags


def keyed(events: list[tuple[str, str | None, int | None, int]], *, is_global: bool = True) -> pa.Table:
    skeys = [
        GLOBAL_KEY + k.encode() if is_global else PARTITIONED_KEY + (p or "").encode() + b"\0" + k.encode()
        for k, p, _, _ in events
    ]
    n = len(events)
    return pa.table(
        {
            "skey": pa.array(skeys, pa.binary()),
            "part": pa.array([p for _, p, _, _ in events], pa.string()),
            "ord": pa.array([t or 0 for _, _, t, _ in events], pa.int64()),
            "flags": pa.array([f for *_, f in events], pa.int8()),
            "src": pa.nulls(n, pa.string()),
            "pos_hi": pa.array(np.zeros(n, np.int64)),
            "pos_lo": pa.array(np.arange(n)),
            "row": pa.array([{"what": f"{k}@{t}"} for k, _, t, _ in events], pa.struct([("what", pa.string())])),
            "value": pa.array([b"raw" if f & FLAG_BAD else None for *_, f in events], pa.binary()),
            "reason": pa.array(["why" if f & FLAG_BAD else None for *_, f in events], pa.string()),
        }
    )


def found(*rows: tuple[str, str, str, str, int | None]) -> pa.Table:
    names = ["record_key", "partition_path", "file_id", "instant", "ord"]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    kinds = [pa.string()] * 4 + [pa.int64()]
    return pa.table([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=names)


def tag(events: list[Any], places: pa.Table, *, is_global: bool = True, **more: Any) -> tuple[Located, dict[str, int]]:
    spec = PullSpec(PROFILE, "int64", is_global, more.pop("update_partition_path", True), **more)
    rows, counts = tag_pulled(0, keyed(events, is_global=is_global), places, spec)
    out = [
        (
            OPS[r["op"]] + (f" ({MOVED})" if r["note"] == MOVED else ""),
            r["skey"].rpartition(b"\0")[2].lstrip(GLOBAL_KEY).decode(),
            r["dest_part"],
            r["dest_file"] if r["op"] else "new",
        )
        for r in rows.to_pylist()
    ]
    return sorted(out), counts


def test_insert_update_move_delete_and_late() -> None:
    events = [
        event("new", "p1", 5),
        event("same", "p1", 5),
        event("moved", "p2", 5),
        event("gone", None, 5, FLAG_DELETE),
        event("bare", None, None, FLAG_DELETE),
        event("late", "p2", 5),
        event("unknown", "p1", 5, FLAG_DELETE),
    ]
    places = found(
        ("same", "p1", "f1", "1", 4), ("moved", "p1", "f1", "1", 4), ("gone", "p3", "f3", "1", 4),
        ("bare", "p3", "f3", "1", 9), ("late", "p1", "f1", "1", 6),
    )  # fmt: skip
    located, counts = tag(events, places)
    assert located == [
        ("delete", "bare", "p3", "f3"),
        ("delete", "gone", "p3", "f3"),
        ("delete (moved)", "moved", "p1", "f1"),
        ("insert", "moved", "p2", "new"),
        ("insert", "new", "p1", "new"),
        ("update", "same", "p1", "f1"),
    ]
    assert {k: counts[k] for k in ("records", "inserts", "updates", "moves", "deletes", "late", "unknown_deletes")} == {
        "records": 7, "inserts": 1, "updates": 1, "moves": 1, "deletes": 2, "late": 1, "unknown_deletes": 1,
    }  # fmt: skip


@pytest.mark.parametrize("ordering", get_args(OrderingKind))
def test_where_nothing_is_looked_up_the_newest_record_of_each_key_is_an_insert(ordering: OrderingKind) -> None:
    """As in an overwrite, with every kind of ordering values; a delete finds no row."""
    rows = keyed([event("k", "p1", 1), event("k", "p2", 2), event("m", "p1", 1), event("gone", None, 1, FLAG_DELETE)])
    if has_bytes(ordering):
        values = [b"%d" % value for value in rows.column("ord").to_pylist()]
        rows = rows.set_column(rows.schema.get_field_index("ord"), "ord", pa.array(values, pa.binary()))
    located, counts = tag_pulled(0, rows, None, PullSpec(PROFILE, ordering, True, True))
    assert [(r["op"], r["skey"], r["dest_part"]) for r in located.to_pylist()] == [
        (OP_INSERT, GLOBAL_KEY + b"k", "p2"), (OP_INSERT, GLOBAL_KEY + b"m", "p1")
    ]  # fmt: skip
    assert (counts["inserts"], counts["unknown_deletes"]) == (2, 1)


def test_a_record_that_lacks_values_is_a_bad_one() -> None:
    """Of a format whose records may lack some: the whole ones go their way, the others to the quarantine."""
    records = keyed([event("whole", "p1", 5), event("short", "p1", 5)])
    records = records.append_column("absent", pa.array([None, b"\x80"], pa.binary()))
    records = records.append_column("old", pa.nulls(2, pa.binary()))
    rows, counts = tag_pulled(0, records, found(), PullSpec(PROFILE, "int64", True, True))
    assert [(r["op"], r["skey"]) for r in rows.to_pylist()] == [
        (OP_INSERT, GLOBAL_KEY + b"whole"), (OP_BAD, GLOBAL_KEY + b"short")
    ]  # fmt: skip
    assert "only the state index can add" in rows.column("note")[1].as_py()
    assert counts["inserts"] == 1
    whole, _ = tag_pulled(0, records.slice(0, 1), found(), PullSpec(PROFILE, "int64", True, True))
    assert whole.num_rows == 1


def test_of_a_key_that_is_there_twice_the_newest_counts() -> None:
    places = found(("k", "p1", "old", "1", 4), ("k", "p2", "young", "2", 4))
    located, counts = tag([event("k", "p2", 5)], places)
    assert located == [("delete (moved)", "k", "p1", "old"), ("update", "k", "p2", "young")]
    assert counts["twice"] == 1


def test_of_two_slices_of_one_instant_the_greater_ordering_value_counts() -> None:
    """A clustering gives all slices its instant. A record that is older than one of the rows is late."""
    places = found(
        ("k", "p1", "b", "3", 4), ("k", "p2", "a", "3", 9), ("m", "p1", "b", "3", None), ("m", "p2", "a", "3", 4)
    )
    located, counts = tag([event("k", "p2", 5), event("m", "p1", 3)], places)
    assert located == [] and counts["late"] == 2


@pytest.mark.parametrize("partition", ["p1", "p2", "p3"])
def test_every_row_of_a_key_that_is_there_several_times_is_reached(partition: str) -> None:
    """An update, a move or a delete leaves none of the others; a late event leaves all."""
    places = found(
        ("k", "p1", "a", "1", 9), ("k", "p1", "b", "2", 4), ("k", "p2", "c", "3", 4), ("m", "p1", "a", "1", 4)
    )
    located, counts = tag([event("k", None, 5, FLAG_DELETE), event("m", "p1", 5)], places)
    assert sorted(row[2:] for row in located if row[1] == "k") == [("p1", "a"), ("p1", "b"), ("p2", "c")]
    assert counts["deletes"] == 1
    located, counts = tag([event("k", partition, 5), event("m", "p1", 5)], places)
    gone = sorted(row[2:] for row in located if row[1] == "k" and row[0].startswith("delete"))
    assert gone == [("p1", "a"), ("p1", "b"), *([] if partition == "p2" else [("p2", "c")])]
    assert (counts["updates"], counts["moves"]) == ((2, 0) if partition == "p2" else (1, 1))
    assert [row for row in located if row[1] == "m"] == [("update", "m", "p1", "a")]
    assert [row[1] for row in tag([event("k", None, 3, FLAG_DELETE), event("m", "p1", 5)], places)[0]] == ["m"]


def test_a_row_stays_in_its_partition_where_that_is_asked() -> None:
    places = found(("k", "p1", "f1", "1", 4))
    located, _ = tag([event("k", "p2", 5)], places, update_partition_path=False)
    assert located == [("update", "k", "p1", "f1")]


def test_without_a_global_index_another_partition_is_another_row() -> None:
    events = [event("k", "p1", 5), event("k", "p2", 5)]
    located, _ = tag(events, found(("k", "p1", "f1", "1", 4)), is_global=False)
    assert located == [("insert", "k", "p2", "new"), ("update", "k", "p1", "f1")]


def resolver(rows: dict[str, int | None]) -> Resolve:
    def resolve(partition: str, file_id: str, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
        here = [k for k in keys.to_pylist() if k in rows]
        return pa.array(here, pa.string()), pa.array([rows[k] for k in here], pa.int64())

    return resolve


@pytest.mark.parametrize(
    "late", [event("k", "p2", 5), event("k", None, 5, FLAG_DELETE), event("k", "p1", 5, FLAG_DELETE)]
)
def test_an_index_without_ordering_values_looks_rows_up_that_would_leave(late: Any) -> None:
    places = found(("k", "p1", "f1", "1", None))
    located, counts = tag([late], places, resolve=resolver({"k": 6}))
    assert (located, counts["late"]) == ([], 1)
    located, counts = tag([late], places, resolve=resolver({"k": 5}))
    assert located and counts["late"] == 0
    # The index is wrong: no row is there any more. Nothing is deleted, an upsert is an insert.
    located, _ = tag([late], places, resolve=resolver({}))
    assert located == ([] if late[3] & FLAG_DELETE else [("insert", "k", "p2", "new")])


def test_computed_places() -> None:
    def locate(keys: pa.Array, partitions: pa.Array) -> tuple[pa.Array, np.ndarray]:
        exists = np.array([p == "p1" for p in partitions.to_pylist()])
        return pa.array([f"b-{p}" for p in partitions.to_pylist()]), exists

    events = [
        event("a", "p1", 5),
        event("b", "p2", 5),
        event("c", "p1", 5, FLAG_DELETE),
        event("d", "p2", 5, FLAG_DELETE),
    ]
    located, counts = tag(events, None, is_global=False, locate=locate)  # type: ignore[arg-type]
    assert located == [("delete", "c", "p1", "b-p1"), ("insert", "b", "p2", "new"), ("update", "a", "p1", "b-p1")]
    assert counts["records"] == 4


def test_bad_records_go_on_to_the_quarantine() -> None:
    spec = PullSpec(PROFILE, "int64", True, True)
    rows, counts = tag_pulled(0, keyed([event("k", "p1", 5), event("x", "p1", 5, FLAG_BAD)]), found(), spec)
    good, bad = rows.to_pylist()
    assert (good["op"], good["row"], good["value"]) == (0, {"what": "k@5"}, None)
    assert (bad["op"], bad["row"], bad["value"], json.loads(bad["note"])) == (4, None, b"raw", [None, 0, 1, "why"])
    assert counts["records"] == 1
    only_bad, counts = tag_pulled(0, keyed([event("x", "p1", 5, FLAG_BAD)]), found(), spec)
    assert ([r["op"] for r in only_bad.to_pylist()], counts["records"]) == ([4], 0)
