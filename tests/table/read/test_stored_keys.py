"""The key generator of a job against the keys and paths of stored rows."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.errors import ConfigError, TableConfigMismatchError
from tagstream.table.keys.joda_pattern import parse_pattern
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.keys.time_partition import TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read import stored_keys
from tagstream.table.read.stored_keys import StoredRows, differences, fitting_generator, stored_rows
from tagstream.table.schema.schema import PARTITION_PATH, RECORD_KEY
from tests.support import public_tables
from tests.table import reference

READABLE = [
    name
    for name in public_tables.NAMES
    if name not in ("hudi_bootstrap_data", "hudi_hudi-v5-table", "hudi_stock_ticks_mor__2",
                    "rs_cow_v9_lance_nonpartitioned", "rs_cow_v6_timebasedkeygen_nonhivestyle")
]  # fmt: skip


def spec_of(place: Path) -> tuple[HoodieTable, DecodeSpec]:
    table = HoodieTable.open(str(place))
    text = table.schema_json()
    assert text is not None
    return table, DecodeSpec.of(table, text, text, global_index=True, files=True)


def with_properties(place: Path, **changes: str) -> Path:
    """The table with other values in its properties (``_`` for ``.``), as a person writes them."""
    file = place / ".hoodie" / "hoodie.properties"
    lines = [x for x in file.read_text().splitlines() if not x.startswith("hoodie.table.checksum")]
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    lines = [line for line in lines if line.partition("=")[0] not in keys]
    file.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in keys.items())]) + "\n")
    return place


@pytest.mark.parametrize("name", READABLE)
def test_every_public_table_has_the_keys_that_a_job_makes(name: str, tmp_path: Path) -> None:
    table, spec = spec_of(public_tables.unpack(name, tmp_path))
    fields = (*spec.record_key_fields, *spec.partition_fields)
    assert list(stored_rows(table, fields)), "no row was looked at"
    assert spec.fitted(table).sql_times is (name == "hudi_multi_pt_v8_mor")


@pytest.mark.parametrize("name", reference.NAMES)
def test_every_table_of_real_hudi_has_them(name: str, tmp_path: Path) -> None:
    table, spec = spec_of(reference.unpack(name, tmp_path))
    assert list(stored_rows(table, (*spec.record_key_fields, *spec.partition_fields)))
    assert spec.fitted(table) == spec


def test_spark_sql_s_timestamps_are_written_as_it_writes_them(tmp_path: Path) -> None:
    table, spec = spec_of(public_tables.unpack("hudi_multi_pt_v8_mor", tmp_path))
    generator = spec.fitted(table).key_generator_rules
    for found in stored_rows(table, (*generator.record_key_fields, *generator.partition_fields)):
        assert generator.partition_paths(found.rows).to_pylist() == found.rows["_hoodie_partition_path"].to_pylist()


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "rs_mor_v9_mor_8i4u_commit_time",
            {"hoodie__datasource__write__hive_style_partitioning": "false"},
            "written with hoodie.datasource.write.hive_style_partitioning=true and",
        ),
        (
            "hudi_hudi-v8-table",
            {"hoodie__datasource__write__hive_style_partitioning": "true"},
            "written with hoodie.datasource.write.hive_style_partitioning=false and",
        ),
        (
            "hudi_non_extractable_partition_path",
            {"hoodie__datasource__write__partitionpath__urlencode": "true"},
            "hoodie.datasource.write.partitionpath.urlencode=false: correct hoodie.properties",
        ),
        (
            "rs_cow_v9_timebasedkeygen_epochmillis",
            {"hoodie__keygen__timebased__timezone": "Asia/Shanghai"},
            "its paths are in another time zone, such as UTC: set hoodie.keygen.timebased.timezone",
        ),
        (
            "rs_cow_v9_timebasedkeygen_epochmillis",
            {"hoodie__table__keygenerator__type": "SIMPLE"},
            "makes '1705",
        ),
        (
            "hudi_v6_composite_key",
            {"hoodie__table__recordkey__fields": "name,id"},
            "of the record key 'id:",
        ),
        ("hudi_hudi-v8-table", {"hoodie__table__partition__fields": "id"}, "of the partition path '2023-01-0"),
    ],
)
def test_another_generator_or_flag_is_refused(name: str, changes: dict[str, str], words: str, tmp_path: Path) -> None:
    table, spec = spec_of(with_properties(public_tables.unpack(name, tmp_path), **changes))
    with pytest.raises(TableConfigMismatchError, match=re.escape(words)) as caught:
        spec.fitted(table)
    assert "tagstream.check.stored.keys=false" in str(caught.value)


def test_a_table_without_a_row_that_says_anything_is_taken_as_it_is(tmp_path: Path) -> None:
    table, spec = spec_of(public_tables.unpack("hudi_hudi-v8-table", tmp_path))
    assert list(stored_rows(table, ("no such column",))) == []
    assert spec.fitted(table).key_generator_rules == spec.key_generator_rules


def test_hours_of_a_half_day_are_written() -> None:
    hours = pa.array([h * 3_600_000 for h in (0, 1, 11, 12, 13, 23)], pa.timestamp("ms", "UTC"))
    assert parse_pattern("hh").write(hours).to_pylist() == ["12", "01", "11", "12", "01", "11"]
    assert parse_pattern("K").write(hours).to_pylist() == ["0", "1", "11", "0", "1", "11"]
    assert parse_pattern("kk").write(hours).to_pylist() == ["24", "01", "11", "12", "13", "23"]
    with pytest.raises(ConfigError, match="'hh', which cannot be read"):
        parse_pattern("yyyy hh").expression()


def test_texts_of_digits_are_numbers_in_a_table_that_has_them() -> None:
    prefix = "hoodie.keygen.timebased."
    times = TimePartition.from_properties({
        f"{prefix}timestamp.type": "EPOCHMILLISECONDS", f"{prefix}output.dateformat": "yyyy/MM/dd/HH",
    })  # fmt: skip
    with pytest.raises(ConfigError, match="takes numbers"):
        times.check("t", pa.string())
    times.check("t", pa.string(), digits=True)
    paths, reasons = times.paths(pa.array(["1705311000000", None, "x", "-1", "9" * 19]))
    assert paths.to_pylist() == ["2024/01/15/09", "1970/01/01/00", None, "1969/12/31/23", None]
    assert [r is None for r in reasons.to_pylist()] == [True, True, False, True, False]
    assert reasons[2].as_py() == "the partition field's text x is not a whole number"


class Stored:
    """A table that has these rows of each partition, and no files: (partition path, value of the partition field)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: dict[str, list[str]]) -> None:
        self.config = SimpleNamespace(name="t")
        self.base_path = "/t"
        found = []
        for path, values in rows.items():
            same = {RECORD_KEY: ["k"] * len(values), PARTITION_PATH: [path] * len(values), "id": ["k"] * len(values)}
            found.append(StoredRows(path, f"{path}/f", pa.table({**same, "p": values})))
        monkeypatch.setattr(stored_keys, "stored_rows", lambda *_: iter(found))


@pytest.mark.parametrize(
    ("rows", "moves", "refused"),
    [
        ({"a": ["b"]}, False, None),
        ({"a": ["b"], "c": ["d"]}, False, None),
        ({"a": ["b"], "c": ["c"]}, True, None),
        ({"a": ["b"], "c": ["d"]}, True, "its writer had another key generator"),
        ({"p=a": ["a"], "p=c": ["d"]}, False, "written with hoodie.datasource.write.hive_style_partitioning=true and"),
        ({"p=a": ["a"], "p=c": ["d"]}, True, "written with hoodie.datasource.write.hive_style_partitioning=true and"),
        ({"a%3Ab": ["a:b"], "c": ["d"], "e": ["e"]}, True, "urlencode=true: correct"),
    ],
    ids=["one", "all", "some", "all but none may", "flag", "flag that moves", "encoded"],
)
def test_rows_that_their_writer_left_where_they_were_are_no_alarm(
    rows: dict[str, list[str]], moves: bool, refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index over all partitions may keep a row where it was while its partition field changes."""
    generator = KeyGenerator.create("SIMPLE", ["id"], ["p"])
    table: Any = Stored(monkeypatch, rows)
    if refused is None:
        assert fitting_generator(table, generator, moves=moves) == generator
        return
    with pytest.raises(TableConfigMismatchError, match=re.escape(refused)):
        fitting_generator(table, generator, moves=moves)


def test_a_day_beside_a_row_s_own_is_no_time_zone_where_rows_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "hoodie.keygen.timebased."
    times = TimePartition.from_properties({
        f"{prefix}timestamp.type": "DATE_STRING", f"{prefix}input.dateformat": "yyyy-MM-dd HH:mm",
        f"{prefix}output.dateformat": "yyyy/MM/dd",
    })  # fmt: skip
    generator = KeyGenerator.create("TIMESTAMP", ["id"], ["p"], times=times)
    table: Any = Stored(monkeypatch, {"2024/03/02": ["2024-03-01 20:00"]})
    assert fitting_generator(table, generator, moves=False) == generator
    with pytest.raises(TableConfigMismatchError, match="its paths are in another time zone, such as Asia/Shanghai"):
        fitting_generator(table, generator)


def test_all_rows_of_a_file_have_to_differ() -> None:
    """An index over all partitions may keep a row where it was while its partition field changes."""
    generator = KeyGenerator.create("SIMPLE", ["id"], ["p"])
    rows = pa.table({RECORD_KEY: ["1", "2"], PARTITION_PATH: ["a", "a"], "id": ["1", "2"], "p": ["b", "a"]})
    assert not list(differences(generator, [StoredRows("a", "f", rows)]))
    assert [d.what for d in differences(generator, [StoredRows("a", "f", rows.slice(0, 1))])] == ["partition path"]
