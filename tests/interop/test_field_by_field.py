"""Tables of real Hudi, written again from the same rows in the same steps: equal in every field but the named ones.

Compared are the meta columns and rows of every file, in file order; Parquet's schema, statistics and footer; file
names; log blocks with their headers, delete blocks byte for byte; commit files member by member; the states on the
timeline; partition metafiles; and the table's properties.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tagstream.table.services.validate import validate
from tests.interop.compared import Compared, compare_fields
from tests.interop.fields import fields_of
from tests.interop.known_differences import AVRO_LOGS, KNOWN
from tests.interop.replay import replay
from tests.support.hudi_rs import read_table
from tests.table.reference import expected, unpack

# name -> how many of its commits can be replayed; None: all
TABLES: dict[str, int | None] = {
    "cow_v6_native015_days": None,  # 0.15, three levels of partition folders
    "cow_v6_hive_alltypes": None,  # 1.x, hive style, every column type, full-size bloom filters
    "cow_v6_complexkey_replace": 2,  # 1.x, key id,seq and two partition fields; then its groups are replaced
    "cow_v6_global_bloom_moves": None,  # 1.x, moves
    "mor_v6_parquet_log": None,  # 1.x, every column type in Parquet blocks, delete blocks
    "mor_v6_global_simple_moves_015": None,  # 0.15, commit-time merging, moves as delete blocks
    "cow_v9_defaults_alltypes": None,  # 1.x with its defaults, every column type
    "mor_v9_defaults": 3,  # 1.x with its defaults; then it is compacted
    "mor_v8_global_record_index": None,  # 1.x, moves and deletes by a record index
}
WITH_AVRO_LOGS = ("mor_v6_global_simple_moves_015", "mor_v9_defaults", "mor_v8_global_record_index")


def compared(name: str, folder: Path) -> Compared:
    base_path = unpack(name, folder)
    both = replay(base_path, folder / "ours", TABLES[name])
    assert validate(both.ours) == []
    user_avro = both.real.schema_json() or ""
    real = fields_of(both.real, both.instants, both.file_ids, user_avro)
    ours = fields_of(both.ours, both.instants.values(), both.file_ids.values(), user_avro)
    known = (*KNOWN, *(AVRO_LOGS if name in WITH_AVRO_LOGS else ()))
    result = compare_fields(real, ours, known)
    if TABLES[name] is None:
        assert read_table(folder / "ours").num_rows == len(expected(base_path)["records"])
    return result


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compared]:
    """Compares a table the first time it is asked for."""
    return cache(lambda name: compared(name, tmp_path_factory.mktemp(name)))


@pytest.mark.extended(
    "more tables that real Hudi wrote", first=("cow_v6_complexkey_replace", "mor_v6_parquet_log", "mor_v9_defaults")
)
@pytest.mark.parametrize("name", TABLES)
def test_every_difference_is_a_known_one(name: str, results: Callable[[str], Compared]) -> None:
    assert results(name).unexplained == []


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_left_out_of_the_comparison(name: str, results: Callable[[str], Compared]) -> None:
    """The names of the fields that are equal hold each area that was to be compared."""
    found = results(name)
    equal = "\n".join(field for field, value in found.real.items() if found.ours.get(field) == value)
    wanted = [
        "properties hoodie.table.checksum", "<I0>", "compacted", "operationType", "extraMetadata schema",
        "prevCommit", "numWrites", "numInserts", "numUpdateWrites", "numDeletes", "fileSizeInBytes", "partitionPath",
        "metafile ", "partitionDepth", "footer org.apache.hudi.bloomfilter", "footer hoodie_min_record_key",
        "footer hoodie_bloom_filter_type_code", "footer parquet.avro.schema", "_hoodie_commit_time",
        "_hoodie_commit_seqno form", "_hoodie_commit_seqno distinct", "_hoodie_record_key", "_hoodie_file_name",
        "_hoodie_partition_path", "column 5 id type", "column 5 id range",
    ]  # fmt: skip
    if name.startswith("mor"):
        deletes = any(field.endswith(" blocks") and "DELETE" in value for field, value in found.real.items())
        wanted += ["header SCHEMA", "header INSTANT_TIME", "logFiles", "logVersion", "content"]
        wanted += [" keys"] if deletes else []
    assert [part for part in wanted if part not in equal] == []
    assert len(found.real) > 2000


def test_no_known_difference_is_out_of_date(results: Callable[[str], Compared]) -> None:
    used = {known for name in TABLES for known in results(name).used}
    assert [known.field for known in (*KNOWN, *AVRO_LOGS) if known not in used] == []
