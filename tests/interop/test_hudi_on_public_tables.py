"""Public tables by real Hudi 1.2.0: read as they are, read after a stream and services of ours, upserted into."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.schema.schema import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from tests.cli.running import run_json
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.public_tables_case import PublicCase, rows_of

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]

# Hudi's DataFrame writer, with what a user says of a table, finds the rows of these where they are. It takes the others,
# which SQL or an older Hudi made, for tables of other paths, keys or schemas.
UPSERTED = (
    "hudi_hudi-v8-table",
    "hudi_hudi-v8-table-cow",
    "rs_mor_v9_mor_8i4u_commit_time",
    "rs_mor_v9_mor_nonpart_3commits",
    "hudi_hudi-v9-table",
    "hudi_v6_composite_key",
    "rs_mor_v8_trips_8i3u1d",
    "hudi_vector_cow",
)
Rows = dict[tuple[str, str], dict[str, Any]]
# Two of each class where there are two.
NAMES = (
    "hudi_trips_logical_types_json_mor_read_v6",  # milliseconds under microseconds
    "hudi_trips_logical_types_json_cow_read_v6",
    "hudi_hudi-v8-table",  # metadata table of Hudi 1.0
    "hudi_hudi-v8-table-cow",  # (Hudi 1.2.0 does not read hudi_non_extractable_partition_path itself)
    "hudi_multi_pt_v8_mor",  # keys and paths
    "hudi_timestamp_keygen_pt_epoch_to_yyyy_mm_dd_hh_v8_mor",
    "rs_mor_v9_mor_8i4u_commit_time",  # order of arrival
    "rs_mor_v9_mor_nonpart_3commits",  # and a metadata table that is gone
    "hudi_hudi-v9-table",  # early HFiles
    "hudi_hudi-v9-table-complex-keygen",
    "rs_cow_v9_timebasedkeygen_epochmillis",  # promoted statistics
    "rs_cow_v9_timebasedkeygen_unixtimestamp",
    "hudi_v6_composite_key",  # columns of version 6
    "rs_mor_v8_trips_8i3u1d",  # a secondary index
    "hudi_vector_cow",
)


# Vectors come as lists of numbers, and a column of a partition as its path has it.
_VECTORS = {"embedding1": "<f4", "embedding2": "<f8", "embedding3": "<i1"}
_OF_PATHS = ("part_timestamp",)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    peers.set_up()
    with HudiSpark("1.2.0", tmp_path_factory.mktemp("hudi")) as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_hudi_reads_the_same_before_and_after_us(
    name: str, newest: HudiSpark, tmp_path: Path, spark: SparkSession
) -> None:
    case = PublicCase.of(name, tmp_path, spark)
    assert _differences(_of_hudi(newest.read(case.case.table)), case.rows) == {}, "as it was published"
    assert case.stream() == (1, 1, 1, 0)
    at = ("--target-base-path", case.case.table)
    for metadata in ("false", "true"):
        found = _of_hudi(newest.read(case.case.table, **{"hoodie.metadata.enable": metadata}))
        assert _differences(found, case.rows) == {}, f"after the stream, metadata table {metadata}"
    if case.table.config.is_merge_on_read:
        run_json("table", "compact", *at, "--yes")
    run_json("table", "cluster", *at, "--yes")
    for metadata in ("false", "true"):
        found = _of_hudi(newest.read(case.case.table, **{"hoodie.metadata.enable": metadata}))
        assert _differences(found, case.rows) == {}, f"after services, metadata table {metadata}"
    assert _differences({k: _plain(v) for k, v in rows_of(case.case.table).items()}, case.rows) == {}
    if name in UPSERTED:
        _hudi_upserts(case, newest)


def _hudi_upserts(case: PublicCase, hudi: HudiSpark) -> None:
    """Hudi finds a row that the stream has changed, and one that it has added, where the stream has written them."""
    for place in case.written():
        value = case.change(place)
        hudi.change(case.table, place, case.shape.changed, value)
    for metadata in ("false", "true"):
        found = _of_hudi(hudi.read(case.case.table, **{"hoodie.metadata.enable": metadata}))
        assert _differences(found, case.rows) == {}, f"after Hudi's upsert, metadata table {metadata}"
    assert _differences(rows_of(case.case.table), case.rows) == {}, "after Hudi's upsert, by our reader"


def _of_hudi(found: pa.Table) -> Rows:
    rows = found.drop_columns(
        [n for n in META_COLUMNS if n not in (RECORD_KEY, PARTITION_PATH) and n in found.column_names]
    )
    listed = [((r[PARTITION_PATH], r[RECORD_KEY]), r) for r in rows.to_pylist(maps_as_pydicts="strict")]
    keys = [at for at, _ in listed]
    return {at: _plain(row) for at, row in listed if keys.count(at) == 1}


def _differences(found: Rows, wanted: Rows) -> dict[tuple[str, str], Any]:
    plain = {at: _plain(row) for at, row in wanted.items()}
    return {
        at: {c: (found.get(at, {}).get(c), plain.get(at, {}).get(c)) for c in {*found.get(at, {}), *plain.get(at, {})}
             if found.get(at, {}).get(c) != plain.get(at, {}).get(c)} or "no columns"
        for at in found.keys() | plain.keys()
        if found.get(at) != plain.get(at)
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Values of both readers in one form: moments without a zone are of UTC, vectors are their bytes."""
    if isinstance(value, dict):
        return {k: _of_column(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    return value


def _of_column(name: str, value: Any) -> Any:
    if name in _VECTORS and isinstance(value, list):
        return np.array(value, _VECTORS[name]).tobytes()
    if name in _OF_PATHS and value is not None:
        return _plain(value.replace(microsecond=0))
    return _plain(value)
