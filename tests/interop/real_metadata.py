"""Tables that real Hudi makes from nothing, with a metadata table, in the same steps for each kind of table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.interop.hudi_spark import HudiSpark
from tests.support.table_version import using
from tests.table.writer import SCHEMA, Row, Writer, row

# One file group of statistics and of bloom filters each: else which of them a record is in follows from names of files,
# which two tables do not share.
OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "2",
    "hoodie.metadata.index.column.stats.file.group.count": "1",
    "hoodie.metadata.index.bloom.filter.file.group.count": "1",
    "hoodie.index.bloom.num_entries": "1000",
    "hoodie.parquet.small.file.limit": "0",  # new keys come into new file groups
}
EVERYTHING = {
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.record.index.update.partition.path": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "2",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
}
BY_PARTITION = {
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.metadata.record.level.index.min.filegroup.count": "2",
}


@dataclass(frozen=True)
class Kind:
    """A release of Hudi, the table's version and type, and the options beside its defaults."""

    release: str
    version: int
    table_type: str
    options: tuple[tuple[str, str], ...]
    moves: bool = False


def _kinds() -> dict[str, Kind]:
    found = {}
    for release, version in (("0.15.0", 6), ("1.2.0", 8), ("1.2.0", 9)):
        for short, table_type in (("cow", COPY_ON_WRITE), ("mor", MERGE_ON_READ)):
            found[f"{short}_v{version}_defaults"] = Kind(release, version, table_type, ())
            everything = tuple(EVERYTHING.items())
            found[f"{short}_v{version}_everything"] = Kind(release, version, table_type, everything, moves=True)
    found["mor_v9_by_partition"] = Kind("1.2.0", 9, MERGE_ON_READ, tuple(BY_PARTITION.items()))
    return found


KINDS = _kinds()


def make(hudi: HudiSpark, kind: Kind, folder: Path) -> Path:
    """The table in a new folder; five commits."""
    path = folder / "t"
    with using(kind.version):
        model = Writer.create(folder / "model", kind.table_type).table
    options = {**OPTIONS, **dict(kind.options)}
    p = [f"p{n}" for n in range(3)]
    move = 1 if kind.moves else 0
    first = [row(n, p[n % 3], 1) for n in range(60)]
    _write(hudi, model, path, options, first)
    changed = [row(n, p[(n + move * (n % 4 == 0)) % 3], 2, "changed") for n in range(0, 40, 2)]
    _write(hudi, model, path, options, [*changed, *(row(n, p[n % 3], 2) for n in range(100, 106))])
    gone = [row(n, p[n % 3], 3) for n in (41, 43, 45, 59, 105)]
    _write(hudi, model, path, options, gone, "delete")
    back = [row(n, p[n % 3], 4, "back") for n in (41, 59)]
    _write(hudi, model, path, options, [*back, *(row(n, "p9", 4) for n in range(200, 204))])
    _write(hudi, model, path, options, [row(n, p[n % 3], 5, "last") for n in (47, 49, 51, 53)])
    return path


def _write(
    hudi: HudiSpark,
    model: HoodieTable,
    path: Path,
    options: dict[str, str],
    rows: Sequence[Row],
    operation: str = "upsert",
) -> None:
    hudi.write(model, pa.Table.from_pylist(list(rows), SCHEMA), options, operation, to=path)
