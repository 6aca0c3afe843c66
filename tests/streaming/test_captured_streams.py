"""Captured change streams through every step of a batch but Spark's own, to the rows that the source's SELECT gave."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagstream.streaming.batch.changed_keys import remove_changed_key_rows
from tagstream.streaming.errors import HeldRowError
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.pipeline import Pipeline
from tests.support import cdc

ORDERS = json.dumps(cdc.schema_by_id(6))
BOTH = pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
JSON = FormatRules("debezium-json")


@pytest.mark.extended("more kinds of tables", first=("jsonschema-MERGE_ON_READ", "json-COPY_ON_WRITE"))
@BOTH
@pytest.mark.parametrize("folder", ["json", "jsonschema"])
def test_orders_at_each_phase(tmp_path: Path, table_type: str, folder: str) -> None:
    run = Pipeline.create(tmp_path, table_type, ORDERS, ["id"], ["day"], JSON)
    for phase, messages in cdc.phases(folder, "shop.orders"):
        run.batch(messages)
        if run.batch_id:
            wrong = cdc.differences(run.rows(), cdc.truth("shop.orders", phase), ["id"], ["span"])
            assert not wrong, (phase, wrong[:5])
    assert not run.bad
    assert run.counts["skipped"] > 0


@pytest.mark.extended("longer random histories", first=("0-COPY_ON_WRITE",))
@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_orders_in_batches_cut_anywhere(tmp_path: Path, table_type: str, seed: int) -> None:
    """Partitions are read unevenly: a changed key's new row may come before the delete of the old one."""
    r = random.Random(seed)
    run = Pipeline.create(tmp_path, table_type, ORDERS, ["id"], ["day"], JSON)
    left = [[m for m in cdc.messages("json", "shop.orders") if m.partition == p] for p in (0, 1)]
    while any(left):
        taken = []
        for n, mine in enumerate(left):
            count = r.randint(0, 25)
            taken += mine[:count]
            left[n] = mine[count:]
        run.batch(taken)
    wrong = cdc.differences(run.rows(), cdc.truth("shop.orders", "resnapshot"), ["id"], ["span"])
    assert not wrong, wrong[:5]


@BOTH
def test_placeholders_of_nine_types(tmp_path: Path, table_type: str) -> None:
    schema = {"type": "record", "name": "b", "fields": [{"name": "id", "type": "int"}, *(
        {"name": name, "type": ["null", kind], "default": None} for name, kind in PLACEHOLDERS.items()
    )]}  # fmt: skip
    run = Pipeline.create(tmp_path, table_type, json.dumps(schema), ["id"], [], JSON)
    for phase, messages in cdc.phases("race/json", "x.b"):
        run.batch(messages)
        rows = [r | {name: json.loads(r[name]) for name in ("j", "js")} for r in run.rows()]
        wrong = cdc.differences(rows, cdc.truth("x.b", phase, ("snapshot", "go"), "race/truth"), ["id"])
        assert not wrong, [text[:200] for text in wrong]
    assert not run.bad


def array(kind: object) -> dict[str, object]:
    return {"type": "array", "items": ["null", kind]}


PLACEHOLDERS: dict[str, object] = {
    "n": "int", "raw": "bytes", "tx": array("string"), "nu": array("int"), "bi": array("long"), "j": "string",
    "js": "string", "u": array("string"), "d": array({"type": "int", "logicalType": "date"}), "s": "string",
    "big": {"type": "record", "name": "V", "connect.name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]},
}  # fmt: skip

NOTES = json.dumps({"type": "record", "name": "n", "fields": [
    {"name": "id", "type": "long"}, {"name": "p", "type": ["null", "string"], "default": None},
    {"name": "a", "type": ["null", "string"], "default": None}, {"name": "b", "type": ["null", "string"], "default": None},
]})  # fmt: skip
HOLE = "__debezium_unavailable_value"


@dataclass
class Topic:
    """Makes messages: each gets the next position in the log, and an offset in its partition."""

    lsn: int = 100
    offset: int = 0

    def message(self, op: str, key: int, row: dict[str, object] | None = None, **more: Any) -> cdc.Message:
        lsn = more.get("lsn")
        self.lsn, self.offset = lsn or self.lsn + 1, self.offset + 1
        after = None if row is None else {"id": key, "p": "x", "a": None, "b": None} | row
        value = {"op": op, "before": None, "after": after, "source": {"lsn": self.lsn, "snapshot": "false"}}
        old = more.get("old")
        headers = {} if old is None else {"__debezium.oldkey": json.dumps({"id": old})}
        if (new := more.get("new")) is not None:
            headers["__debezium.newkey"] = json.dumps({"id": new})
        partition = more.get("partition", 0)
        return cdc.Message(
            partition, self.offset, json.dumps({"id": key}).encode(), json.dumps(value).encode(), headers
        )

    def change_of_key(self, old: int, new: int, row: dict[str, object]) -> list[cdc.Message]:
        """Two records with one position, in different topic partitions."""
        gone = self.message("d", old, new=new)
        return [gone, self.message("c", new, row, old=old, partition=1, lsn=self.lsn)]


def rows_of(run: Pipeline) -> dict[int, tuple[Any, ...]]:
    return {r["id"]: (r["p"], r["a"], r["b"]) for r in run.rows()}


def notes(tmp_path: Path, table_type: str) -> Pipeline:
    return Pipeline.create(tmp_path, table_type, NOTES, ["id"], ["p"], JSON)


@BOTH
def test_what_was_not_sent_is_taken_from_the_batch_the_row_and_the_old_partition(
    tmp_path: Path, table_type: str
) -> None:
    run, t = notes(tmp_path, table_type), Topic()
    run.batch([t.message("c", 1, {"a": "a1", "b": "b1"}), t.message("u", 1, {"a": HOLE, "b": "b2"})])
    assert rows_of(run) == {1: ("x", "a1", "b2")}
    run.batch([t.message("u", 1, {"a": HOLE, "b": "b3"}), t.message("u", 1, {"a": HOLE, "b": HOLE})])
    assert rows_of(run) == {1: ("x", "a1", "b3")}, "the newest value of each column"
    run.batch([t.message("u", 1, {"p": "y", "a": HOLE, "b": HOLE})])
    assert rows_of(run) == {1: ("y", "a1", "b3")}, "a move takes it along"
    run.batch(
        [t.message("u", 1, {"p": "y", "a": None, "b": HOLE}), t.message("u", 1, {"p": "y", "a": HOLE, "b": HOLE})]
    )
    assert rows_of(run) == {1: ("y", None, "b3")}, "null is a value"
    late = t.message("u", 1, {"p": "y", "a": "late", "b": "late"}, lsn=50)
    run.batch([late, t.message("u", 1, {"p": "y", "a": HOLE, "b": "b4"}, lsn=500)])
    assert rows_of(run) == {1: ("y", None, "b4")}, "a record older than the row gives nothing"
    assert not run.bad


@BOTH
@pytest.mark.parametrize("how", ["together", "new first", "old first"])
def test_a_changed_key_keeps_what_the_old_one_had(tmp_path: Path, table_type: str, how: str) -> None:
    run, t = notes(tmp_path, table_type), Topic()
    run.batch([t.message("c", 1, {"a": "a1", "b": "b1"}), t.message("c", 7, {"a": "a7"})])
    run.batch([t.message("u", 1, {"a": HOLE, "b": "b2"})])
    gone, new = t.change_of_key(1, 2, {"a": HOLE, "b": HOLE, "p": "z"})
    for batch in {"together": [[gone, new]], "new first": [[new], [gone]], "old first": [[gone], [new]]}[how]:
        run.batch(batch)
    assert rows_of(run) == {2: ("z", "a1", "b2"), 7: ("x", "a7", None)}
    assert not run.bad


@BOTH
def test_keys_that_change_twice_in_the_batch_that_makes_them(tmp_path: Path, table_type: str) -> None:
    run, t = notes(tmp_path, table_type), Topic()
    first = [t.message("c", 1, {"a": "a1", "b": "b1"}), t.message("u", 1, {"a": HOLE, "b": "b2"})]
    second, third = t.change_of_key(1, 2, {"a": HOLE, "b": HOLE}), t.change_of_key(2, 3, {"a": HOLE, "b": "b3"})
    again = [t.message("c", 1, {"a": "new", "b": "new"})]
    run.batch([*first, *second, *third, *again])
    assert rows_of(run) == {1: ("x", "new", "new"), 3: ("x", "a1", "b3")}


@BOTH
def test_a_row_that_is_deleted_in_the_batch_that_made_it_so(tmp_path: Path, table_type: str) -> None:
    """No file of the table has it ever had so: its values are left for the record of the new key, which comes later."""
    run, t = notes(tmp_path, table_type), Topic()
    run.batch([t.message("c", 1, {"a": "a1", "b": "b1"}), t.message("c", 7, {"a": "a7"})])
    made = [t.message("c", 2, {"a": "a2", "b": "b2"}), t.message("u", 2, {"a": HOLE, "b": "b3"})]
    changed = [t.message("u", 1, {"a": "a9", "b": HOLE})]  # the slice before has another value
    gone_2, new_3 = t.change_of_key(2, 3, {"a": HOLE, "b": HOLE})
    gone_1, new_4 = t.change_of_key(1, 4, {"a": HOLE, "b": HOLE, "p": "z"})
    gone_3, new_5 = t.change_of_key(3, 5, {"a": HOLE, "b": "b5"})
    run.batch([*made, *changed, gone_2, gone_1])
    assert rows_of(run) == {7: ("x", "a7", None)}
    run.restart()
    run.batch([t.message("u", 7, {"a": HOLE, "b": "b7"})])
    run.batch([new_3, new_4, gone_3])
    assert rows_of(run) == {4: ("z", "a9", "b1"), 7: ("x", "a7", "b7")}
    run.batch([new_5])
    assert rows_of(run) == {4: ("z", "a9", "b1"), 5: ("x", "a2", "b5"), 7: ("x", "a7", "b7")}
    run.batch([t.message("c", 1, {"a": "new", "b": "new"})])  # the key again, and again another one later
    gone_1, new_6 = t.change_of_key(1, 6, {"a": HOLE, "b": HOLE})
    run.batch([gone_1])
    run.batch([new_6])
    assert rows_of(run)[6] == ("x", "new", "new"), "the slice is newer than what was left"
    assert not run.bad
    old = remove_changed_key_rows(PosixStorage(run.table.base_path + "-changed-keys"), 2**62)
    assert old > 0


@BOTH
def test_a_new_key_is_read_before_the_last_events_of_the_old_one(tmp_path: Path, table_type: str) -> None:
    """What its row took is old, or nothing, and is mended when the old key's delete comes; what was sent since stays."""
    run, t = notes(tmp_path, table_type), Topic()
    run.batch([t.message("c", n, {"a": f"a{n}", "b": f"b{n}"}) for n in (1, 2, 3)])
    changed = [t.message("u", n, {"a": f"A{n}", "b": HOLE}) for n in (1, 2, 3)]
    made = [t.message("c", 4, {"a": "a4", "b": "b4"})]
    pairs = [t.change_of_key(n, n * 10, {"a": HOLE, "b": HOLE, "p": "z"}) for n in (1, 2, 3, 4)]
    fifth = t.change_of_key(2, 50, {"a": "sent", "b": "sent"})[1]  # its delete is never read: nothing is to be mended
    run.batch([new for _, new in pairs] + [fifth])
    assert rows_of(run)[10] == ("z", "a1", "b1"), "as far as is known"
    assert rows_of(run)[40] == ("z", None, None), "nothing is known yet"
    run.restart()
    run.batch([t.message("u", 20, {"a": "newer", "b": HOLE}), t.message("u", 30, {"p": "w", "a": HOLE, "b": HOLE})])
    last = [t.message("u", 10, {"a": HOLE, "b": "b10"})]
    run.batch([*changed, *made, *(gone for gone, _ in pairs), *last])
    wanted = {
        10: ("x", "A1", "b10"), 20: ("x", "newer", "b2"), 30: ("w", "A3", "b3"), 40: ("z", "a4", "b4"),
        50: ("x", "sent", "sent"),
    }  # fmt: skip
    assert rows_of(run) == wanted
    assert not run.bad
    run.batch([t.message("d", 40), *t.change_of_key(10, 1, {"a": HOLE, "b": HOLE})])
    del wanted[40], wanted[10]
    assert rows_of(run) == wanted | {1: ("x", "A1", "b10")}


@pytest.mark.extended("more kinds of tables")
@BOTH
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_keys_in_partitions_that_are_read_unevenly(
    tmp_path_factory: pytest.TempPathFactory, table_type: str, data: st.DataObject
) -> None:
    """Any history of rows whose keys change, a partition of the topic by key, read in any cuts: the database's rows."""
    run, t = notes(tmp_path_factory.mktemp("uneven"), table_type), Topic()
    live: dict[int, dict[str, object]] = {}
    topic: list[list[cdc.Message]] = [[], []]
    free, changed = 0, set[int]()  # a row's key changes once: of a chain of changes some may be lost, by name

    def put(message: cdc.Message, key: int) -> None:
        part = topic[key % 2]
        part.append(replace(message, partition=key % 2, offset=len(part)))

    for step in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from("cuukkd"))
        if what == "c" or not live:
            free += 1
            live[free] = {"p": "x", "a": f"a{step}", "b": f"b{step}"}
            put(t.message("c", free, live[free]), free)
            continue
        key = data.draw(st.sampled_from(sorted(live)))
        if what == "d":
            del live[key]
            put(t.message("d", key), key)
            continue
        # a null that is sent while the row still has null for want of a value is taken for that one
        null = {"p": "q"} if key in changed else {"b": None}
        sent = data.draw(st.sampled_from([{}, {"a": f"a{step}"}, null, {"p": "y"}, {"p": "z", "b": f"b{step}"}]))
        row = live[key] | sent
        what = "u" if key in changed else what
        held = {name: HOLE for name in ("a", "b") if name not in sent and row[name] is not None}
        if what == "u":
            live[key] = row
            put(t.message("u", key, row | held), key)
            continue
        free += 1
        changed.add(free)
        del live[key]
        live[free] = row
        gone, new = t.change_of_key(key, free, row | held)
        put(gone, key)
        put(new, free)
    at = [0, 0]
    while at != [len(part) for part in topic]:
        ends = [min(len(part), n + data.draw(st.integers(0, 6))) for part, n in zip(topic, at, strict=True)]
        if ends == at:
            ends = [len(part) for part in topic]
        run.batch([m for part, n, end in zip(topic, at, ends, strict=True) for m in part[n:end]])
        at = ends
        if data.draw(st.booleans()) and run.batch_id:
            run.restart()
    found = rows_of(run) if run.batch_id else {}
    assert found == {key: (row["p"], row["a"], row["b"]) for key, row in live.items()}
    assert not run.bad


@BOTH
def test_a_row_that_was_lost_before_its_key_changed_is_lost_behind_it(tmp_path: Path, table_type: str) -> None:
    run, t = notes(tmp_path, table_type), Topic()
    run.batch([t.message("c", 1, {"a": "a1"})])
    lost = t.message("c", 2, {"a": HOLE}, old=9)
    gone, new = t.change_of_key(2, 3, {"a": HOLE})
    run.batch([lost, gone])
    with pytest.raises(HeldRowError, match="record '3' has no value for a"):
        run.batch([new])


@BOTH
def test_what_no_row_holds_is_quarantined_and_never_written(tmp_path: Path, table_type: str) -> None:
    run, t = notes(tmp_path, table_type), Topic()
    run.batch(
        [t.message("u", 1, {"a": HOLE, "b": "b1"}), t.message("c", 2, {"a": "a2", "b": HOLE}), t.message("c", 3, {})]
    )
    assert rows_of(run) == {3: ("x", None, None)}
    assert ["neither the table nor this batch has the row" in note for note in run.bad] == [True, True]
    gone, new = t.change_of_key(4, 5, {"a": HOLE})
    run.batch([new])
    assert rows_of(run)[5] == ("x", None, None), "the old key's events may be in a batch to come"
    with pytest.raises(HeldRowError, match="record '5' has no value for a, .*unavailable.lost=null"):
        run.batch([gone])


def test_a_lost_value_can_be_null(tmp_path: Path) -> None:
    run, t = notes(tmp_path, COPY_ON_WRITE), Topic()
    run.spec = replace(run.spec, format=replace(JSON, null_if_lost=True))
    run.batch([t.message("c", 5, {"a": HOLE, "b": "b5"}, old=4)])
    assert rows_of(run) == {5: ("x", None, "b5")}
