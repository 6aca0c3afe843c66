"""A key that changes while values are not sent, with an ordering field and without: deletes say no order of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.errors import HeldRowError
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.table.services.cleaning import clean
from tagstream.table.services.options import CleanOptions
from tests.streaming.pipeline import Pipeline
from tests.support import cdc

UNSENT = "__debezium_unavailable_value"
_TEXT = {"type": ["null", "string"], "default": None}
SCHEMA = json.dumps({
    "type": "record",
    "name": "n",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "part", **_TEXT}, {"name": "lsn", "type": "long"},
        {"name": "v", **_TEXT}, {"name": "w", **_TEXT},
    ],
})  # fmt: skip
BEFORE = {
    "full": lambda old: {**old, "v": None},
    "zeros": lambda old: {"id": old["id"], "part": None, "lsn": 0, "v": None, "w": None},
    "nulls": lambda old: {"id": old["id"], "part": None, "lsn": None, "v": None, "w": None},
}


class Case:
    """A table, and Debezium's events for it."""

    def __init__(self, folder: Path, table_type: str, ordering: list[str], before: str = "zeros") -> None:
        self.run = Pipeline.create(folder, table_type, SCHEMA, ["id"], ["part"], FormatRules("debezium-json"), ordering)
        self.before, self.offset = before, 0

    def _message(self, key: str, value: dict[str, Any], headers: dict[str, str]) -> cdc.Message:
        self.offset += 1
        return cdc.Message(0, self.offset, json.dumps({"id": key}).encode(), json.dumps(value).encode(), headers)

    def row(self, key: str, lsn: int, v: str, w: str, old: str | None = None, part: str = "p1") -> cdc.Message:
        after = {"id": key, "part": part, "lsn": lsn, "v": v, "w": w}
        headers = {} if old is None else {"__debezium.oldkey": json.dumps({"id": old})}
        return self._message(key, {"op": "c", "before": None, "after": after, "source": {"lsn": lsn}}, headers)

    def gone(self, key: str, lsn: int, new: str | None) -> cdc.Message:
        old = {"id": key, "part": "p1", "lsn": lsn, "v": "x", "w": "x"}
        value = {"op": "d", "before": BEFORE[self.before](old), "after": None, "source": {"lsn": lsn}}
        return self._message(key, value, {} if new is None else {"__debezium.newkey": json.dumps({"id": new})})

    def rows(self) -> dict[str, tuple[str, str]]:
        return {row["id"]: (row["v"], row["w"]) for row in self.run.rows()}


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table_type(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.mark.parametrize("ordering", [["lsn"], []])
@pytest.mark.parametrize("before", list(BEFORE))
def test_delete_and_new_row_in_one_batch(tmp_path: Path, table_type: str, ordering: list[str], before: str) -> None:
    case = Case(tmp_path, table_type, ordering, before)
    case.run.batch([case.row("k0", 10, "v10", "w10")])
    case.run.batch([case.row("k0", 20, UNSENT, "w20")])
    case.run.batch([case.gone("k0", 30, "k1"), case.row("k1", 30, UNSENT, UNSENT, "k0")])
    assert case.rows() == {"k1": ("v10", "w20")}


@pytest.mark.parametrize("ordering", [["lsn"], []])
@pytest.mark.parametrize("delete_first", [True, False])
def test_delete_and_new_row_in_two_batches(
    tmp_path: Path, table_type: str, ordering: list[str], delete_first: bool
) -> None:
    case = Case(tmp_path, table_type, ordering)
    case.run.batch([case.row("k0", 10, "v10", "w10")])
    both = [case.gone("k0", 30, "k1"), case.row("k1", 30, UNSENT, UNSENT, "k0")]
    for message in both if delete_first else both[::-1]:
        case.run.batch([message])
    assert case.rows() == {"k1": ("v10", "w10")}


@pytest.mark.parametrize("ordering", [["lsn"], []])
def test_a_key_that_changed_before(tmp_path: Path, table_type: str, ordering: list[str]) -> None:
    case = Case(tmp_path, table_type, ordering)
    case.run.batch(
        [case.row("k0", 10, "OLD", "OLD"), case.gone("k0", 11, "k5"), case.row("k5", 11, UNSENT, UNSENT, "k0")]
    )
    case.run.batch([case.row("k0", 20, "v10", "w10")])
    case.run.batch([case.gone("k0", 30, "k1"), case.row("k1", 30, UNSENT, UNSENT, "k0")])
    assert case.rows() == {"k1": ("v10", "w10"), "k5": ("OLD", "OLD")}


def test_what_was_taken_of_a_row_from_before_is_corrected(tmp_path: Path, table_type: str) -> None:
    """The old key was deleted and made again, and only then it changed; the new row is read before the second life."""
    case = Case(tmp_path, table_type, ["lsn"])
    case.run.batch([case.row("k0", 10, "OLD", "OLD")])
    case.run.batch([case.gone("k0", 11, None)])
    case.run.batch([case.row("k1", 30, UNSENT, UNSENT, "k0")])
    case.run.batch([case.row("k0", 20, "v20", "w20")])
    case.run.batch([case.gone("k0", 30, "k1")])
    assert case.rows() == {"k1": ("v20", "w20")}


@pytest.mark.parametrize("split", [1, 2, 3])
@pytest.mark.parametrize("before", ["zeros", "full"])
def test_an_earlier_delete_in_the_new_rows_batch_is_not_taken_for_the_one_that_renamed(
    tmp_path: Path, table_type: str, before: str, split: int
) -> None:
    """The old key was deleted and made again before; ``split``: so many of its events are in the batch of the new row."""
    case = Case(tmp_path, table_type, ["lsn"], before)
    case.run.batch([case.row("k0", 10, "OLD", "OLD")])
    old = [case.gone("k0", 11, None), case.row("k0", 20, "v20", "w20"), case.row("k0", 25, "v25", "w25")]
    case.run.batch([*old[:split], case.row("k1", 30, UNSENT, UNSENT, "k0")])
    case.run.batch([*old[split:], case.gone("k0", 30, "k1")])
    assert case.rows() == {"k1": ("v25", "w25")}


@pytest.mark.extended("more forms of a delete", first=("zeros",))
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("before", list(BEFORE))
def test_the_old_key_is_used_and_deleted_again_in_the_same_batch(
    tmp_path: Path, table_type: str, before: str, twice: bool
) -> None:
    """Deletes that say no order are told apart by the rows between them; the row had moved, so an older one exists."""
    case = Case(tmp_path, table_type, ["lsn"], before)
    case.run.batch([case.row("k0", 10, "OLD", "OLD")])
    case.run.batch([case.row("k0", 20, "v20", "w20", part="p2")])
    gone = [case.gone("k0", 30, "k1")] * (2 if twice else 1)
    later = [case.row("k0", 40, "v40", "w40"), case.gone("k0", 50, None), case.row("k0", 60, "v60", "w60")]
    case.run.batch([*gone, case.row("k1", 30, UNSENT, UNSENT, "k0"), *later])
    assert case.rows() == {"k1": ("v20", "w20"), "k0": ("v60", "w60")}


@pytest.mark.extended("more forms of a delete", first=("zeros",))
@pytest.mark.parametrize("before", list(BEFORE))
def test_a_key_that_changes_twice_in_a_batch(tmp_path: Path, table_type: str, before: str) -> None:
    """Its row before each change is another one; the second new key changes, too, and leaves its row for a later batch."""
    case = Case(tmp_path, table_type, ["lsn"], before)
    case.run.batch([case.row("k0", 10, "v10", "w10")])
    first = [case.gone("k0", 20, "k1"), case.row("k1", 20, UNSENT, UNSENT, "k0")]
    second = [case.row("k0", 30, "v30", "w30"), case.gone("k0", 40, "k2"), case.row("k2", 40, UNSENT, UNSENT, "k0")]
    case.run.batch([*first, *second, case.gone("k1", 50, "k3")])
    case.run.batch([case.row("k3", 50, UNSENT, UNSENT, "k1"), case.gone("k2", 60, "k4")])
    case.run.batch([case.row("k4", 60, UNSENT, UNSENT, "k2")])
    assert case.rows() == {"k3": ("v10", "w10"), "k4": ("v30", "w30")}


def test_rows_that_were_read_before_both_changes_of_a_key(tmp_path: Path, table_type: str) -> None:
    case = Case(tmp_path, table_type, ["lsn"])
    case.run.batch([case.row("k0", 10, "OLD", "OLD")])
    case.run.batch([case.row("k1", 20, UNSENT, UNSENT, "k0")])
    case.run.batch([case.row("k2", 40, UNSENT, UNSENT, "k0")])
    early = [case.row("k0", 15, "v15", "w15"), case.gone("k0", 20, "k1")]
    case.run.batch([*early, case.row("k0", 30, "v30", "w30"), case.gone("k0", 40, "k2")])
    assert case.rows() == {"k1": ("v15", "w15"), "k2": ("v30", "w30")}


def test_two_changes_of_a_key_in_a_batch_and_the_new_rows_later(tmp_path: Path, table_type: str) -> None:
    case = Case(tmp_path, table_type, ["lsn"])
    case.run.batch([case.row("k0", 10, "v10", "w10")])
    case.run.batch([case.gone("k0", 20, "k1"), case.row("k0", 30, "v30", "w30"), case.gone("k0", 40, "k2")])
    case.run.batch([case.row("k1", 20, UNSENT, UNSENT, "k0")])
    case.run.batch([case.row("k2", 40, UNSENT, UNSENT, "k0")])
    assert case.rows() == {"k1": ("v10", "w10"), "k2": ("v30", "w30")}


@pytest.mark.parametrize("combined", [False, True])
def test_two_changes_of_a_key_in_two_batches_and_the_new_rows_later(
    tmp_path: Path, table_type: str, combined: bool
) -> None:
    case = Case(tmp_path, table_type, ["lsn"])
    case.run.batch([case.row("k0", 10, "v10", "w10")])
    case.run.batch([case.gone("k0", 20, "k1")])
    case.run.batch([case.row("k0", 30, "v30", "w30")])
    case.run.batch([case.gone("k0", 40, "k2")])
    new = [case.row("k1", 20, UNSENT, UNSENT, "k0"), case.row("k2", 40, UNSENT, UNSENT, "k0")]
    for messages in [new] if combined else [[each] for each in new]:
        case.run.batch(messages)
    assert case.rows() == {"k1": ("v10", "w10"), "k2": ("v30", "w30")}


def test_a_new_row_that_comes_twice_in_a_later_batch(tmp_path: Path, table_type: str) -> None:
    case = Case(tmp_path, table_type, ["lsn"])
    case.run.batch([case.row("k0", 10, "v10", "w10")])
    case.run.batch([case.gone("k0", 20, "k1")])
    case.run.batch([case.row("k1", 20, UNSENT, UNSENT, "k0") for _ in range(2)])
    assert case.rows() == {"k1": ("v10", "w10")}


def test_what_was_taken_of_an_earlier_life_that_changed_its_key_is_corrected(tmp_path: Path, table_type: str) -> None:
    case = Case(tmp_path, table_type, ["lsn"])
    case.run.batch([case.row("k0", 10, "OLD", "OLD")])
    case.run.batch([case.gone("k0", 11, "k5"), case.row("k5", 11, UNSENT, UNSENT, "k0")])
    case.run.batch([case.row("k1", 30, UNSENT, UNSENT, "k0")])
    case.run.batch([case.row("k0", 20, "v20", "w20")])
    case.run.batch([case.gone("k0", 30, "k1")])
    assert case.rows() == {"k1": ("v20", "w20"), "k5": ("OLD", "OLD")}


def test_a_row_that_the_cleaner_has_removed_is_no_null(tmp_path: Path) -> None:
    case = Case(tmp_path, "COPY_ON_WRITE", ["lsn"])
    case.run.batch([case.row("k0", 10, "v10", "w10"), case.row("k9", 10, "v", "w")])
    case.run.batch([case.gone("k0", 30, "k1")])
    for n in range(4):
        case.run.batch([case.row("k9", 40 + n, "v", "w")])
    clean(case.run.table.reload(), CleanOptions(commits=1), lambda: case.run.now_ms + 5)
    case.run.table = case.run.table.reload()
    with pytest.raises(HeldRowError, match="'k1' has no value for v, w"):
        case.run.batch([case.row("k1", 30, UNSENT, UNSENT, "k0")])
