"""File names and instants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group import names

FILE_ID = "6d3d1d6e-2298-4080-a0c1-494877d6f40a-0"


def test_file_id_is_a_function_of_its_parts() -> None:
    first = names.new_file_id("t", "q", 3, "p=1", 0)
    assert first == names.new_file_id("t", "q", 3, "p=1", 0)
    assert first.endswith("-0") and "_" not in first and "." not in first


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_file_ids_differ_when_the_parts_differ(left: list[str], right: list[str]) -> None:
    assert (names.new_file_id(*left) == names.new_file_id(*right)) == (left == right)


def test_base_file_name_round_trip() -> None:
    name = names.base_file_name(FILE_ID, names.write_token(0, 26, 85), "20250618054711154")
    assert name == f"{FILE_ID}_0-26-85_20250618054711154.parquet"
    parsed = names.parse_base_file_name(name)
    assert parsed == names.BaseFileName(FILE_ID, "0-26-85", "20250618054711154", "parquet")


def test_log_file_name_round_trip() -> None:
    name = names.log_file_name(FILE_ID, "20250618054711154", 12, "0-26-85")
    assert name == f".{FILE_ID}_20250618054711154.log.12_0-26-85"
    assert names.parse_log_file_name(name) == names.LogFileName(FILE_ID, "20250618054711154", 12, "0-26-85", False)


def test_log_file_names_of_other_engines() -> None:
    bare = names.parse_log_file_name(".0c3b4354-9593_20250618054711.log.1")
    assert bare == names.LogFileName("0c3b4354-9593", "20250618054711", 1, None, False)
    change_log = names.parse_log_file_name(f".{FILE_ID}_20250618054711154.log.2_1-0-1.cdc")
    assert change_log is not None and change_log.is_cdc


@pytest.mark.parametrize("name", [".hoodie_partition_metadata", "a.parquet", "a_b.parquet", ".x.crc", "_SUCCESS"])
def test_other_names_are_neither(name: str) -> None:
    assert names.parse_base_file_name(name) is None
    assert names.parse_log_file_name(name) is None


def test_seqnos() -> None:
    assert names.seqnos("20250118044623136", 1, 5, 2).to_pylist() == ["20250118044623136_1_5", "20250118044623136_1_6"]
    assert len(names.seqnos("20250118044623136", 1, 0, 0)) == 0


def test_instant_in_utc() -> None:
    assert names.instant_from_ms(1_704_164_645_006, utc=True) == "20240102030405006"


def test_instant_in_the_zone_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert names.instant_from_ms(1_704_164_645_006, utc=False) == "20240102120405006"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_next_instant_is_past_the_newest() -> None:
    ms = 1_704_164_645_006
    assert names.next_instant(ms, None, utc=True) == "20240102030405006"
    assert names.next_instant(ms, "20240102030405005", utc=True) == "20240102030405006"
    assert names.next_instant(ms, "20240102030405006", utc=True) == "20240102030405007"
    assert names.next_instant(ms, "20241231235959999", utc=True) == "20250101000000000"
    assert names.next_instant(ms, "20240102030405", utc=True) == "20240102030406000"
    # the names Hudi gives to what existed before its first commit
    assert names.next_instant(ms, "00000000000000", utc=True) == "20240102030405006"


def test_next_instant_refuses_garbage() -> None:
    with pytest.raises(CorruptFileError, match="not an instant time"):
        names.next_instant(0, "2024-01-02")


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 4_000_000_000_000))
def test_instants_are_ordered_like_time(left: int, right: int) -> None:
    pair = names.instant_from_ms(left, utc=True), names.instant_from_ms(right, utc=True)
    assert (pair[0] < pair[1]) == (left < right)


def test_write_token_refuses_negative_parts() -> None:
    with pytest.raises(ValueError):
        names.write_token(0, -1, 0)
    with pytest.raises(ValueError):
        names.log_file_name(FILE_ID, "1", 0, "0-0-0")
