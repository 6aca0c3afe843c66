"""Tables of real Hudi in shapes that the fixtures do not have: read as Hudi reads them, and written on by the stream.

What the stream refuses it refuses by name at the start, and the table is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.interop.hudi_spark import HudiSpark
from tests.interop.shape_stream import by_key, differences, stream_into
from tests.interop.shapes import READ, SHAPES, WRITTEN
from tests.streaming.stream_case import StreamCase
from tests.support.hudi_rs import read_table

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], HudiSpark]]:
    """A running Hudi of a release."""
    peers.set_up()
    running: list[HudiSpark] = []

    @cache
    def start(name: str) -> HudiSpark:
        running.append(HudiSpark(name, tmp_path_factory.mktemp(f"hudi-{name}")))
        return running[-1].__enter__()

    yield start
    for each in running:
        each.__exit__(None, None, None)


def made(name: str, hudi: HudiSpark, folder: Path) -> tuple[Path, pa.Table]:
    """The table, and its rows by Hudi; this project reads the same ones."""
    table = SHAPES[name].make(hudi, folder, name)
    before = hudi.read(table)
    assert differences(by_key(before), read_snapshot(HoodieTable.open(str(table)))) == {}
    return table, before


def read_by_hudi_rs(table: Path) -> pa.Table | None:
    """Its rows; None where it cannot read what Hudi wrote there (docs/reference/compatibility.md)."""
    try:
        return read_table(table)
    except Exception:  # its errors have no class of their own
        return None


@pytest.mark.parametrize("name", WRITTEN)
def test_read_and_written(name: str, release: Callable[[str], HudiSpark], tmp_path: Path, spark: SparkSession) -> None:
    shape, hudi = WRITTEN[name], release(WRITTEN[name].release)
    path, before = made(name, hudi, tmp_path)
    partitions = HoodieTable.open(str(path)).config.metadata_partitions
    readable = read_by_hudi_rs(path) is not None
    done = stream_into(shape, path, before, tmp_path / "job", spark)
    table = HoodieTable.open(str(path))
    assert {"files", "record_index"} & {*partitions} <= {*table.config.metadata_partitions}
    assert validate(table) == []
    assert validate_metadata(table) == []
    assert differences(done.wanted, read_snapshot(table)) == {}
    assert differences(done.wanted, hudi.read(path)) == {}
    if readable:
        assert differences(done.wanted, read_table(path)) == {}


@pytest.mark.parametrize("name", READ)
def test_read_and_refused(name: str, release: Callable[[str], HudiSpark], tmp_path: Path, spark: SparkSession) -> None:
    shape, hudi = READ[name], release(READ[name].release)
    path, _ = made(name, hudi, tmp_path)
    case = StreamCase(tmp_path / "job", spark, existing=path)
    files = case.files()
    with pytest.raises(UnsupportedTableError, match=shape.refused):
        case.run()
    assert case.files() == files
    assert not case.checkpoint.exists()
