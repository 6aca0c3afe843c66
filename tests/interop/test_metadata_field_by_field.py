"""Metadata tables of real Hudi, written again from the same rows in the same steps: equal in every field but the named ones.

Compared are the properties of both tables that tell of it, its timeline with the commits' metadata and the plans, log blocks
with their headers, HFiles from their trailers to their bloom filters, and every record in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from bench.peers import home as peers
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.interop.compared import Compared, compare_fields
from tests.interop.hudi_spark import HudiSpark
from tests.interop.known_metadata_differences import KNOWN
from tests.interop.metadata_fields import MetadataWords, metadata_fields
from tests.interop.real_metadata import KINDS, make
from tests.interop.replay import replay

pytestmark = pytest.mark.hudi_jar


def compared(name: str, path: Path, folder: Path) -> Compared:
    both = replay(path, folder / "ours", with_metadata=True)
    ours = both.ours.reload()
    assert validate(ours) == []
    assert validate_metadata(ours) == []
    tables = ((both.real, both.instants, both.file_ids), (ours, both.instants.values(), both.file_ids.values()))
    found = []
    for table, instants, file_ids in tables:
        metadata = MetadataTable.open(table, table.timeline())
        assert metadata is not None
        theirs = [i.time for i in metadata.timeline.instants if i.action in ("commit", "compaction", "clean")]
        own = sorted({time for time in theirs if not any(time.startswith(each) for each in instants)})
        found.append(metadata_fields(table, MetadataWords(table, instants, own, file_ids)))
    real, mine = found
    return compare_fields(real, mine, KNOWN)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Makes a table of real Hudi the first time it is asked for."""
    peers.set_up()
    running: dict[str, HudiSpark] = {}

    @cache
    def made(name: str) -> Path:
        kind = KINDS[name]
        if kind.release not in running:
            folder = tmp_path_factory.mktemp(f"hudi-{kind.release}")
            running[kind.release] = HudiSpark(kind.release, folder).__enter__()
        return make(running[kind.release], kind, tmp_path_factory.mktemp(name))

    yield made
    for hudi in running.values():
        hudi.__exit__(None, None, None)


@pytest.fixture(scope="module")
def results(real: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compared]:
    """Compares a table the first time it is asked for."""
    return cache(lambda name: compared(name, real(name), tmp_path_factory.mktemp(f"ours-{name}")))


@pytest.mark.parametrize("name", KINDS)
def test_every_difference_is_a_known_one(name: str, results: Callable[[str], Compared]) -> None:
    assert results(name).unexplained == []


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_left_out_of_the_comparison(name: str, results: Callable[[str], Compared]) -> None:
    """The names of the fields that are equal hold each area that was to be compared."""
    found, kind = results(name), KINDS[name]
    equal = "\n".join(field for field, value in found.real.items() if found.ours.get(field) == value)
    wanted = [
        "table properties hoodie.table.metadata.partitions", "properties hoodie.table.checksum", "operationType",
        "deltacommit.requested", "deltacommit.inflight content", "numWrites", "numInserts", "numUpdateWrites",
        "fileSizeInBytes", "prevCommit", "compaction.requested operations files", "totalLogBlocks", "metafile files",
        "(empty) block 0 content", "header INSTANT_TIME", "trailer codec", "trailer meta blocks", "info bloomFilterTypeCode",
        "info minRecordKey", "info hfile.AVG_VALUE_LEN", "filter head", "filter lets all keys pass",
        "record __all_partitions__ filesystemMetadata p1 isDeleted", "record p2 filesystemMetadata <G", " keys",
    ]  # fmt: skip
    if kind.version >= 8:
        wanted += [
            "definitions indexDefinitions column_stats sourceFields",
            "log partition_stats",
            "base partition_stats",
        ]
    if kind.version >= 8 or kind.moves:
        wanted += [f"ColumnStatsMetadata {member}" for member in ("minValue", "maxValue", "valueCount", "nullCount")]
    if kind.moves:
        wanted += [f"recordIndexMetadata {member}" for member in ("of", "instantTime", "partitionName", "fileIndex")]
        wanted += ["BloomFilterMetadata bloomFilter", "BloomFilterMetadata timestamp", "partitions", "content"]
    assert [part for part in wanted if part not in equal] == []
    assert len(found.real) > (900 if (kind.version, kind.moves) == (6, False) else 10_000)


def test_no_known_difference_is_out_of_date(results: Callable[[str], Compared]) -> None:
    used = {known for name in KINDS for known in results(name).used}
    assert [known.field for known in KNOWN if known not in used] == []
