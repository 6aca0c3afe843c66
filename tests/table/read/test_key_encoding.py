"""The table's own rows tell which form of a single complex key it has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.read.stored_keys import names_single_key
from tests.table.writer import Writer, row


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("key", ["1", "id:1"])
def test_the_rows_decide(named: bool, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complex_keys = "org.apache.hudi.keygen.ComplexKeyGenerator"
    settings = {"partition_fields": ("part", "ver"), "key_generator": complex_keys}
    writer = Writer.create(tmp_path, COPY_ON_WRITE, settings=settings)
    assert names_single_key(writer.table) is None
    if named:
        rows = Writer.rows

        def with_names(self: Writer, found: list[dict[str, object]]) -> pa.Table:
            table = rows(self, found)
            index = table.schema.get_field_index("_hoodie_record_key")
            keys = pa.array([f"id:{k}" for k in table.column("_hoodie_record_key").to_pylist()])
            return table.set_column(index, "_hoodie_record_key", keys)

        monkeypatch.setattr(Writer, "rows", with_names)
    writer.write([{**row(1, "p0", 1), "id": key}])
    assert names_single_key(writer.table) is named


def test_other_generators_do_not_care(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(1, "p0", 1)])
    assert names_single_key(writer.table) is None
