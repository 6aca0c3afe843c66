"""Entries of the record index: the bytes of real ones, those of the Avro library, and read back."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.metadata.record_encoding import (
    PLACES,
    commit_avro_json,
    encode_places,
    file_avro_json,
    instant_ms,
    parsed_schema,
)
from tagstream.table.metadata.record_index import AvroColumns
from tests.support.paths import FIXTURES

VECTORS: dict[str, Any] = json.loads((FIXTURES / "vectors/mdt.json").read_text())
INTS64 = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.integers(0, 2**128 - 1).map(lambda number: str(uuid.UUID(int=number)))
FILE_IDS = st.one_of(
    UUIDS,
    st.tuples(UUIDS, st.integers(0, 10**9 - 1)).map(lambda parts: f"{parts[0]}-{parts[1]}"),
    st.tuples(UUIDS, st.sampled_from(["-", "-01", "-x", "--1", "-9999999999", "0", "-1 ", "-+1", "-1_0", "-١"])).map(
        "".join
    ),
    UUIDS.map(str.upper),
    st.text(alphabet="abc-0123456789", max_size=40),
)


@pytest.mark.parametrize(("version", "hudi"), [(6, "0.15.0"), (8, "1.2.0"), (9, "1.2.0")])
def test_the_schema_is_that_of_hudi(version: int, hudi: str) -> None:
    theirs = json.loads((FIXTURES / f"vectors/avsc-{hudi}.json").read_text())["HoodieMetadataRecord"]
    assert json.loads(commit_avro_json(version)) == theirs
    fields = json.loads(file_avro_json(version))["fields"]
    assert fields[5:] == theirs["fields"]
    assert [field["name"] for field in fields[:5]] == [
        "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"
    ]  # fmt: skip


def table(rows: list[tuple[str, str, str, int]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(PLACES.names, row, strict=True)) for row in rows], PLACES)


def test_a_real_entry() -> None:
    """The bytes of a table of version 9 by Hudi 1.2.0."""
    real = bytes.fromhex(
        "0000000000000a00000002 02047031 02d9c08dca83dd98cd12 02a195cea7e0dcb88be301 0200 0200 02ead5eea6c068 00 00 00"
    )
    found = AvroColumns(pa.array([real], pa.binary()), json.loads(file_avro_json(9)))
    bits = [found.numbers(f"recordIndexMetadata.fileId{name}Bits")[0] for name in ("High", "Low")]
    file_id = f"{uuid.UUID(int=(int(bits[0]) & 2**64 - 1) << 64 | int(bits[1]) & 2**64 - 1)}-0"
    rows = table([("k0001", "p1", file_id, 1795337082229)])
    assert encode_places(rows, 9).to_pylist() == [real]


def record(row: tuple[str, str, str, int], version: int) -> dict[str, Any]:
    """An entry as fastavro takes it, put together by hand."""
    _, partition, file_id, at = row
    text, index = (file_id, -1) if len(file_id) == 36 else (file_id[:36], file_id[37:])
    try:
        number = uuid.UUID(text).int
        is_uuid = f"{uuid.UUID(text)}{'' if index == -1 else f'-{int(index)}'}" == file_id and len(str(index)) < 10
    except ValueError:
        number, is_uuid = 0, False
    halves = [half - 2**64 if half >= 2**63 else half for half in (number >> 64, number & 2**64 - 1)]
    member = {
        "partitionName": partition,
        "fileIdHighBits": halves[0] if is_uuid else -1,
        "fileIdLowBits": halves[1] if is_uuid else -1,
        "fileIndex": int(index) if is_uuid else -1,
        "fileId": "" if is_uuid else file_id,
        "instantTime": at,
        "fileIdEncoding": 0 if is_uuid else 1,
    }
    return {"key": "", "type": 5, "recordIndexMetadata": member}


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(st.just("k"), st.text(max_size=80), FILE_IDS, INTS64), max_size=12),
    again=st.lists(st.integers(0, 11), max_size=20),
    version=st.sampled_from([6, 8, 9]),
)
def test_entries_are_those_of_the_avro_library(
    rows: list[tuple[str, str, str, int]], again: list[int], version: int
) -> None:
    rows = [*rows, *(rows[number] for number in again if number < len(rows))]
    wanted = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed_schema(version), record(row, version))
        wanted.append(out.getvalue())
    assert encode_places(table(rows), version).to_pylist() == wanted


def test_the_entries_of_a_real_table() -> None:
    """Locations as read from a real table of version 8 give the same members again."""
    for entry in VECTORS["record_index_v8"]["records"]:
        real = entry["record"]
        number = (real["fileIdHighBits"] & 2**64 - 1) << 64 | real["fileIdLowBits"] & 2**64 - 1
        rows = table([(entry["key"], real["partitionName"], f"{uuid.UUID(int=number)}-0", real["instantTime"])])
        found = fastavro.schemaless_reader(io.BytesIO(encode_places(rows, 8)[0].as_py()), parsed_schema(8), None)
        assert found["recordIndexMetadata"] == {**real, "position": None}  # type: ignore[index, call-overload]


@given(ms=st.integers(0, 4_000_000_000_000), utc=st.booleans())
def test_an_instant_is_its_milliseconds(ms: int, utc: bool) -> None:
    text = instant_from_ms(ms, utc)
    assert instant_from_ms(instant_ms(text, utc), utc) == text
    if utc:
        assert instant_ms(text, utc) == ms


def test_an_old_instant_is_the_end_of_its_second() -> None:
    assert instant_ms("20260101000000", True) % 1000 == 999
    assert instant_ms("20260101000000123006", True) == instant_ms("20260101000000123", True)
    with pytest.raises(CorruptFileError, match="not an instant time"):
        instant_ms("x", True)
