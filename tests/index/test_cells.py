"""What is in HBase, byte for byte, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tagstream.index.errors import HbaseRowError
from tagstream.index.hbase_client import COMMIT_TS, FILE_NAME, PARTITION_PATH
from tagstream.index.hbase_index import RebalancedHbaseIndex
from tagstream.index.hbase_options import plain_row_keys, rebalanced_row_keys
from tagstream.table.errors import InvalidKeyError
from tests.index.case import Case

TIME = "20260102030405678"
FILE_ID = "3f1c2a34-0000-4000-8000-00000000000a-0"


@pytest.mark.hbase
@pytest.mark.spark
@pytest.mark.parametrize(("key", "partition"), [("k1", "p0"), ("ключ/1 😀", "day=2026-01-02/land=Åland"), ("x", "")])
def test_the_cells_of_a_new_row_are_hudis(make_case: Callable[..., Case], key: str, partition: str) -> None:
    case = make_case()
    case.update([(key, partition, FILE_ID, True), ("updated", partition, FILE_ID, False)], TIME)
    assert case.cells(key.encode()) == {
        b"_s:commit_ts": TIME.encode(),
        b"_s:file_name": FILE_ID.encode(),
        b"_s:partition_path": partition.encode(),
    }
    assert case.cells(b"updated") == {}  # an update changes no location, so Hudi does not put it


@pytest.mark.hbase
@pytest.mark.spark
def test_a_rebalanced_row_is_found_under_its_own_key(make_case: Callable[..., Case]) -> None:
    case = make_case(kind=RebalancedHbaseIndex)
    row = {"id": "hello", "part": "p0", "ver": 1, "name": "n", "amount": 1.0}
    instant = case.commit([row])
    assert case.cells(b"2hello")[b"_s:commit_ts"] == instant.encode()
    assert case.cells(b"hello") == {}
    assert case.tag_in_spark("hello", "2hello") == {"hello": (*case.writer.where["hello"], instant)}


@pytest.mark.parametrize(
    ("buckets", "rows"),
    [
        # Printed by Java; hashCode of the third is the smallest int, the only one that abs leaves negative.
        (8, ["0Aa", "2hello", "0polygenelubricants", "4ключ/1"]),
        (10, ["2Aa", "2hello", "-8polygenelubricants", "6ключ/1"]),
        (11, ["00Aa", "06hello", "-2polygenelubricants", "08ключ/1"]),
        (100, ["12Aa", "22hello", "-48polygenelubricants", "36ключ/1"]),
        (1000, ["112Aa", "322hello", "-648polygenelubricants", "036ключ/1"]),
        (1001, ["0110Aa", "0259hello", "-310polygenelubricants", "0954ключ/1"]),
        (1, ["0Aa", "0hello", "0polygenelubricants", "0ключ/1"]),
    ],
)
def test_rebalanced_row_keys_are_javas(buckets: int, rows: list[str]) -> None:
    keys = pa.array(["Aa", "hello", "polygenelubricants", "ключ/1"])
    assert rebalanced_row_keys(keys, buckets).to_pylist() == [row.encode() for row in rows]


@pytest.mark.parametrize("key", ["", "x" * 32_768, None])
def test_a_key_that_hbase_cannot_take_is_refused(key: str | None) -> None:
    with pytest.raises(InvalidKeyError):
        plain_row_keys(pa.array(["good", key], pa.string()))


GOOD = {COMMIT_TS: b"20260102030405678", FILE_NAME: b"f-0", PARTITION_PATH: b"p"}


@pytest.mark.hbase
@pytest.mark.spark
def test_a_row_that_is_no_location_is_refused_by_name(make_case: Callable[..., Case]) -> None:
    case = make_case()
    bad = [
        {COMMIT_TS: b"yesterday"},
        {COMMIT_TS: b""},
        {FILE_NAME: b""},
        {FILE_NAME: b"../f-0"},
        {FILE_NAME: b"\xff\xfe"},
        {PARTITION_PATH: b"../other"},
        {PARTITION_PATH: b"/etc"},
        {PARTITION_PATH: b"a//b"},
        {PARTITION_PATH: b"a/./b"},
    ]
    for number, change in enumerate(bad):
        case.put_raw(b"bad%d" % number, {**GOOD, **change})
    case.put_raw(b"half", {COMMIT_TS: b"20260102030405678"})
    case.put_raw(b"fine", {**GOOD, PARTITION_PATH: b"..a/b.."})
    table = case.index.options.table
    for name in [*(f"bad{n}" for n in range(len(bad))), "half"]:
        with pytest.raises(HbaseRowError, match=f"{table}.*{name}"):
            case.index.complete_commit(TIME, pa.array(["fine", name]))
    case.index.complete_commit("20260101000000000", pa.array(["fine"]))  # read, found newer, and left
    assert case.cells(b"fine") == {**GOOD, PARTITION_PATH: b"..a/b.."}
    with pytest.raises(HbaseRowError, match="bad0"):
        case.tag("bad0")
