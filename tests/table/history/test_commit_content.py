"""Commit files between JSON and Avro: any content, and those of real tables of both versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError
from tagstream.table.history.action_files import COUNTS, commit_record, conformed, read_commit, to_avro, to_json
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.avro_timeline import MAGIC, avro_schema, read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.table.reference import unpack

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "long": LONG,
    "int": st.integers(-(2**31), 2**31 - 1),
    "string": TEXT,
    "array": st.lists(TEXT, max_size=3),
    "map": st.dictionaries(TEXT, LONG, max_size=3),
    "record": st.fixed_dictionaries(
        {}, optional={name: st.none() | LONG for name in ("totalScanTime", "totalCreateTime", "totalUpsertTime")}
    ),
}


def stat_fields() -> list[dict[str, Any]]:
    commit = avro_schema("HoodieCommitMetadata")["fields"][0]["type"][1]
    found: list[dict[str, Any]] = commit["values"]["items"]["fields"]
    return found


def kind_of(field: dict[str, Any]) -> str:
    branch = field["type"][1]
    return str(branch["type"] if isinstance(branch, dict) else branch)


STAT = st.fixed_dictionaries(
    {}, optional={f["name"]: st.none() | KINDS[kind_of(f)] for f in stat_fields()} | {"unknown": TEXT}
)
CONTENT = st.fixed_dictionaries(
    {},
    optional={
        "partitionToWriteStats": st.none() | st.dictionaries(TEXT, st.lists(STAT, max_size=2), max_size=3),
        "compacted": st.none() | st.booleans(),
        "extraMetadata": st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=3),
        "operationType": st.none() | TEXT,
        "partitionToReplaceFileIds": st.none() | st.dictionaries(TEXT, st.lists(TEXT, max_size=3), max_size=2),
        "writeStats": st.lists(TEXT, max_size=1),
    },
)


@given(CONTENT, st.booleans())
def test_any_content_goes_to_avro_and_back(content: dict[str, Any], replaces: bool) -> None:
    text = json.dumps(content).encode()
    avro = to_avro(text, "there", replaces)
    record = read_record(avro, "there")
    assert to_avro(to_json(avro, "there", replaces), "there", replaces) == avro
    assert to_json(to_avro(to_json(text, "there", replaces), "there", replaces), "there", replaces) == to_json(
        text, "there", replaces
    )
    for partition, stats in (content.get("partitionToWriteStats") or {}).items():
        for given_stat, stat in zip(stats, record["partitionToWriteStats"][partition], strict=True):
            assert "unknown" not in stat
            for field in stat_fields():
                value = given_stat.get(field["name"])
                wanted = 0 if value is None and field["name"] in COUNTS else value
                if kind_of(field) == "record" and wanted is not None:
                    wanted = {n: wanted.get(n) or 0 for n in ("totalScanTime", "totalCreateTime", "totalUpsertTime")}
                assert stat[field["name"]] == wanted, field["name"]
    extra = {k: v for k, v in (content.get("extraMetadata") or {}).items() if v is not None}
    assert record["extraMetadata"] == extra
    assert record["operationType"] == (content.get("operationType") or "UNKNOWN")
    assert record.get("partitionToReplaceFileIds") == (
        (content.get("partitionToReplaceFileIds") or {}) if replaces else None
    )


@pytest.mark.parametrize(
    "name",
    ["cow_v6_complexkey_replace", "mor_v6_compacted", "mor_v6_services_015", "flink_mor", "cow_v9_defaults_alltypes",
     "mor_v9_services", "mor_v8_global_record_index"],
)  # fmt: skip
def test_real_commits_say_the_same_in_both_forms(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    timeline = table.timeline()
    assert timeline.completed_writes
    for instant in timeline.completed_writes:
        rel = f"{timeline.folder}/{instant.file_name()}"
        data, replaces = table.storage.read(rel), instant.action == "replacecommit"
        avro, text = to_avro(data, rel, replaces), to_json(data, rel, replaces)
        wanted = CommitMetadata.from_bytes(data, rel)
        assert CommitMetadata.from_bytes(avro, rel) == CommitMetadata.from_bytes(text, rel) == wanted
        if data.startswith(MAGIC):
            # What Hudi wrote is what we write of the JSON form of it, member by member.
            again = read_record(to_avro(text, rel, replaces), rel)
            assert again == read_record(data, rel)


def test_an_empty_file_is_an_empty_commit() -> None:
    record = read_record(to_avro(b"", "there"), "there")
    assert record == {"partitionToWriteStats": {}, "compacted": False, "extraMetadata": {}, "version": None,
                      "operationType": "UNKNOWN"}  # fmt: skip
    assert read_commit(b" \n", "there") == {}


@pytest.mark.parametrize(
    "text",
    [b"x", b"[]", b'{"partitionToWriteStats": [1]}', b'{"partitionToWriteStats": {"p": [1]}}',
     b'{"partitionToWriteStats": {"p": [{"numWrites": "7"}]}}', b'{"extraMetadata": 1}', b'{"extraMetadata": {"a": 1}}',
     b'{"partitionToWriteStats": {"p": [{"numWrites": 9223372036854775808}]}}',
     b'{"partitionToWriteStats": {"p": [{"numWrites": true}]}}',
     b'{"partitionToReplaceFileIds": {"p": "f"}}'],
)  # fmt: skip
def test_content_that_is_none_names_the_file(text: bytes) -> None:
    with pytest.raises(CorruptFileError, match="there"):
        to_avro(text, "there", replace=True)


def test_values_are_brought_to_a_schema() -> None:
    found = conformed("HoodieCleanMetadata", {"startCleanTime": "1", "timeTakenInMillis": 2.0, "totalFilesDeleted": 3,
                      "earliestCommitToRetain": "", "partitionMetadata": {}, "more": 1})  # fmt: skip
    assert found["timeTakenInMillis"] == 2
    assert "more" not in found
    assert found["lastCompletedCommitTimestamp"] == ""
    with pytest.raises(ValueError, match="HoodieCleanMetadata.startCleanTime"):
        conformed("HoodieCleanMetadata", {})
    assert commit_record({}, "there", replace=False)["operationType"] == "UNKNOWN"
