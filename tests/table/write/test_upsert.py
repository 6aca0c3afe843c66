"""The copy-on-write merge: rows in place, untouched ones kept as they are, memory bounded, counts right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.base_file import read_footer, read_keys
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.write import upsert
from tagstream.table.write.upsert import MergeCounts, merge_batches
from tests.support.stored import stored
from tests.table.writer import SCHEMA, Writer, row

FILE = pa.schema([("_hoodie_record_key", pa.string()), ("_hoodie_file_name", pa.string()), ("v", pa.int64())])
keys = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10)


def rows(names: list[str], value: int) -> pa.Table:
    return pa.table([names, ["f"] * len(names), [value] * len(names)], schema=FILE)


@given(st.lists(keys, max_size=3), keys, keys)
def test_merge_is_what_a_dict_says(old: list[list[str]], new: list[str], gone: list[str]) -> None:
    batches, seen = [], set[str]()
    for names in old:
        batches.append([name for name in names if name not in seen])
        seen |= set(names)
    counts = MergeCounts()
    parts = merge_batches(
        (rows(names, 1) for names in batches),
        rows(new, 2),
        pa.table({"_hoodie_record_key": pa.array(gone, pa.string())}),
        "g",
        counts,
    )
    merged = pa.concat_tables([FILE.empty_table(), *parts]).to_pylist()
    before = [name for names in batches for name in names]
    stays = [name for name in before if name in new or name not in gone]
    assert [r["_hoodie_record_key"] for r in merged] == stays + [name for name in new if name not in before]
    assert {r["_hoodie_record_key"]: r["v"] for r in merged} == {**dict.fromkeys(stays, 1), **dict.fromkeys(new, 2)}
    untouched = [r["_hoodie_file_name"] for r in merged if r["v"] == 1]
    assert untouched == ["g"] * len(untouched)
    assert counts == MergeCounts(
        copied=len([n for n in stays if n not in new]),
        updated=len([n for n in before if n in new]),
        inserted=len([n for n in new if n not in before]),
        deleted=len(before) - len(stays),
    )


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), max_size=3), keys, keys)
def test_a_key_that_another_writer_put_into_the_file_again(
    old: list[list[str]], new: list[str], gone: list[str]
) -> None:
    """One new row takes the place of all of its rows, a delete takes all; what nothing comes for stays as it is."""
    counts, deletes = MergeCounts(), pa.table({"_hoodie_record_key": pa.array(gone, pa.string())})
    merged = pa.concat_tables(
        [FILE.empty_table(), *merge_batches((rows(names, 1) for names in old), rows(new, 2), deletes, "g", counts)]
    )
    before = [name for names in old for name in names]
    found = sorted(zip(merged["_hoodie_record_key"].to_pylist(), merged["v"].to_pylist(), strict=True))
    stay = [(name, 1) for name in before if name not in new and name not in gone]
    assert found == sorted([*stay, *((name, 2) for name in new)])
    assert counts.copied + counts.updated + counts.deleted == len(before)
    assert counts.updated == len({*before} & {*new})


ORDERED = FILE.append(pa.field("ts", pa.int64()))
dated = st.dictionaries(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 4)))


@given(dated, dated, dated)
def test_where_the_index_knows_no_ordering_values_the_merge_compares_them(
    old: dict[str, int | None], new: dict[str, int | None], gone: dict[str, int | None]
) -> None:
    gone = {key: at for key, at in gone.items() if key not in new}

    def table(rows: dict[str, int | None], value: int) -> pa.Table:
        return pa.table([list(rows), ["f"] * len(rows), [value] * len(rows), list(rows.values())], schema=ORDERED)

    deletes = pa.table({"_hoodie_record_key": pa.array(list(gone), pa.string()),
                        "_ordering": pa.array(list(gone.values()), pa.int64())})  # fmt: skip
    counts = MergeCounts()
    merged = pa.concat_tables(
        [ORDERED.empty_table(), *merge_batches(iter([table(old, 1)]), table(new, 2), deletes, "g", counts, ("ts",))]
    )
    expected = dict.fromkeys(old, 1) | dict.fromkeys(new, 2)
    late = 0
    for key, at in old.items():
        coming = new.get(key) if key in new else gone.get(key)
        if (key in new or key in gone) and at is not None and coming is not None and at > coming:
            expected[key], late = 1, late + 1
        elif key in gone:
            del expected[key]
    assert dict(zip(merged["_hoodie_record_key"].to_pylist(), merged["v"].to_pylist(), strict=True)) == expected
    assert counts.late == late


def test_an_old_row_without_a_key_is_no_guess() -> None:
    broken = pa.table([[None], ["f"], [1]], schema=FILE)
    with pytest.raises(CorruptFileError, match="no record key"):
        list(merge_batches(iter([broken]), rows(["a"], 2), pa.table({"_hoodie_record_key": ["b"]}), "g", MergeCounts()))


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer.create(tmp_path, COPY_ON_WRITE, groups=1)


def newest_file(writer: Writer) -> str:
    (found,) = writer.table.view().latest_merged_slices("p0")
    return writer.table.storage.where(found.base_path or "")


def test_many_batches_and_row_groups(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "BATCH_ROWS", 7)
    writer.with_options(row_group_bytes=2_000)
    writer.write([row(n, "p0", 1) for n in range(100)])
    first = pq.ParquetFile(newest_file(writer))
    assert first.num_row_groups > 3
    writer.write([row(n, "p0", 2) for n in range(10, 120, 10)], deletes=["k5", "k95"])
    found = read_snapshot(writer.table).to_pylist()
    assert {r["id"]: {name: r[name] for name in SCHEMA.names} for r in found} == writer.live
    order = [r["id"] for r in found]
    assert order == [f"k{n}" for n in [*range(5), *range(6, 95), *range(96, 100), 100, 110]]


def test_meta_columns(writer: Writer) -> None:
    one = writer.write([row(n, "p0", 1) for n in range(6)])
    two = writer.write([row(2, "p0", 2), row(7, "p0", 2)])
    found: list[dict[str, Any]] = read_snapshot(writer.table).to_pylist()
    assert {r["id"]: r["_hoodie_commit_time"] for r in found} == {
        **dict.fromkeys(["k0", "k1", "k3", "k4", "k5"], one), **dict.fromkeys(["k2", "k7"], two),
    }  # fmt: skip
    assert {r["_hoodie_file_name"] for r in found} == {Path(newest_file(writer)).name}
    assert {r["_hoodie_partition_path"] for r in found} == {"p0"}
    assert {r["_hoodie_commit_seqno"] for r in found if r["_hoodie_commit_time"] == two} == {f"{two}_0_0", f"{two}_0_1"}
    assert all(r["_hoodie_record_key"] == r["id"] for r in found)


def test_a_file_whose_rows_are_all_deleted_is_an_empty_file(writer: Writer) -> None:
    writer.write([row(n, "p0", 1) for n in range(3)])
    writer.write(deletes=["k0", "k1", "k2"])
    footer = read_footer(*stored(newest_file(writer)))
    assert (footer.rows, footer.min_key, footer.max_key) == (0, None, None)
    assert read_snapshot(writer.table).num_rows == 0
    writer.write([row(8, "p0", 2)])
    assert read_keys(*stored(newest_file(writer))).to_pylist() == ["k8"]


def test_new_columns_are_null_in_old_rows_and_lost_ones_are_refused(writer: Writer) -> None:
    writer.write([row(1, "p0", 1)])
    writer.schema = SCHEMA.append(pa.field("extra", pa.int32()))
    writer.write([{**row(2, "p0", 1), "extra": 5}])
    found = read_snapshot(writer.table).to_pylist()
    assert {r["id"]: r["extra"] for r in found} == {"k1": None, "k2": 5}
    writer.schema = SCHEMA
    with pytest.raises(UnsupportedTableError, match="extra"):
        writer.write([row(1, "p0", 2)])


def test_the_operation_column_is_left_out_as_hudi_leaves_it_out(writer: Writer) -> None:
    writer.write([row(1, "p0", 1), row(2, "p0", 1)])
    (path,) = Path(writer.table.base_path).rglob("p0/*.parquet")
    old = pq.read_table(path)
    footer = pq.ParquetFile(path).schema_arrow.metadata
    more = old.append_column("_hoodie_operation", pa.array(["I"] * old.num_rows)).replace_schema_metadata(footer)
    pq.write_table(more, path)
    writer.write([row(1, "p0", 2)])
    assert {r["id"]: r["ver"] for r in read_snapshot(writer.table).to_pylist()} == {"k1": 2, "k2": 1}


def test_a_damaged_base_file_is_named(writer: Writer) -> None:
    writer.write([row(n, "p0", 1) for n in range(50)])
    path = newest_file(writer)
    Path(path).write_bytes(Path(path).read_bytes()[:-200])
    with pytest.raises(CorruptFileError, match=Path(path).name):
        writer.write([row(1, "p0", 2)])


def test_memory_is_bounded_by_batches_not_by_the_file(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "BATCH_ROWS", 2_000)
    writer.with_options(row_group_bytes=300_000, codec="uncompressed")
    names = "abcdefgh" * 8
    writer.write([row(n, "p0", 1, f"{n}{names}") for n in range(40_000)])
    size = writer.table.storage.size(newest_file(writer).removeprefix(f"{writer.table.base_path}/"))
    assert size > 4_000_000
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        writer.write([row(7, "p0", 2)], deletes=["k39999"])
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < size / 2
