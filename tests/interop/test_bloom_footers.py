"""Bloom filters that real Hudi wrote into footers: no key is denied, and strangers pass as seldom as configured."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.file_group.base_file import read_footer, read_keys
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, TableConfig
from tests.interop.hudi_spark import HudiSpark
from tests.support.stored import stored
from tests.support.table_version import table_version

pytestmark = pytest.mark.hudi_jar
KEYS, PROBES, FPP = 4_000, 200_000, 0.01
AVRO = '{"type":"record","name":"r","fields":[{"name":"id","type":["null","string"],"default":null},{"name":"ts","type":["null","long"],"default":null}]}'  # noqa: E501


@pytest.mark.parametrize(("kind", "most"), [("SIMPLE", KEYS), ("DYNAMIC_V0", KEYS // 2)])
def test_filters_of_real_hudi(hudi: HudiSpark, tmp_path: Path, kind: str, most: int) -> None:
    config = TableConfig(
        name="filters", table_type=COPY_ON_WRITE, record_key_fields=("id",), ordering_fields=("ts",), create_schema=AVRO,
        version=table_version(),
    )  # fmt: skip
    table = HoodieTable.create(str(tmp_path / "table"), config, 1_700_000_000_000)
    keys = [f"key-{n:06d}-é" if n % 7 else f"{n}" for n in range(KEYS)]
    rows = pa.table({"id": keys, "ts": pa.array(range(KEYS), pa.int64())})
    settings = {
        "hoodie.bloom.index.filter.type": kind,
        "hoodie.index.bloom.num_entries": str(most),
        "hoodie.index.bloom.fpp": str(FPP),
        "hoodie.bloom.index.filter.dynamic.max.entries": str(KEYS),
        "hoodie.metadata.enable": "false",
        "hoodie.insert.shuffle.parallelism": "1",
    }
    hudi.write(table, rows, settings, "insert")
    table = table.reload()
    paths = [table.storage.where(s.base_path or "") for s in table.view().latest_merged_slices("")]
    assert len(paths) == 1
    footer, written = read_footer(*stored(paths[0])), read_keys(*stored(paths[0]))
    assert footer.bloom is not None and footer.bloom.kind == kind
    assert sorted(written.to_pylist()) == sorted(keys)
    assert footer.bloom.might_contain(written.combine_chunks()).all()
    strangers = pa.array([f"stranger-{n}" for n in range(PROBES)])
    rate = footer.bloom.might_contain(strangers).mean()
    print(f"{kind}: {len(footer.bloom.rows)} rows of {footer.bloom.bit_size} bits, false positives {rate:.4f}")
    # A dynamic filter asks every row, so its rate is that of one times the rows.
    assert FPP / 2 < rate < 2 * FPP * len(footer.bloom.rows) ** (kind != "SIMPLE")
