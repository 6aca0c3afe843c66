"""What the history of schemas of Hudi's schema evolution on read tells of names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.schema.evolve import column_not_by_name
from tagstream.table.storage.posix import PosixStorage


def field(number: int, name: str, kind: Any = "long") -> dict[str, Any]:
    return {"id": number, "name": name, "optional": True, "type": kind}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "fields": list(fields)}


def history(tmp_path: Path, *schemas: dict[str, Any]) -> PosixStorage:
    folder = tmp_path / ".hoodie/.schema"
    folder.mkdir(parents=True)
    (folder / "20260101000000000.schemacommit.inflight").write_bytes(b"")
    (folder / "20260101000000000_20260101000000001.schemacommit").write_text("older")
    (folder / "20260102000000000_20260102000000001.schemacommit").write_text(json.dumps({"schemas": schemas}))
    return PosixStorage(str(tmp_path))


def test_a_table_without_one(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    assert column_not_by_name(PosixStorage(str(tmp_path))) is None
    (tmp_path / ".hoodie/.schema").mkdir()
    assert column_not_by_name(PosixStorage(str(tmp_path))) is None


def test_columns_that_were_added_widened_and_dropped(tmp_path: Path) -> None:
    old = struct(field(1, "a", "int"), field(2, "b"), field(3, "s", struct(field(4, "a"))))
    new = struct(field(3, "s", struct(field(4, "a"), field(6, "c"))), field(1, "a", "long"), field(5, "c"))
    assert column_not_by_name(history(tmp_path, new, old)) is None


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (struct(field(1, "total")), "total (also a)"),
        (struct(field(9, "a")), "a"),
        (struct(field(1, "a"), field(2, "s", struct(field(3, "y")))), "s.y (also s.x)"),
        (
            struct(field(1, "a"), field(5, "l", {"type": "array", "element": struct(field(6, "n")), "element_id": 7})),
            "l.element.n (also l.element.m)",
        ),
    ],
)
def test_names_that_mean_another_column(new: dict[str, Any], told: str, tmp_path: Path) -> None:
    inner = {"type": "array", "element": struct(field(6, "m")), "element_id": 7}
    old = struct(field(1, "a"), field(2, "s", struct(field(3, "x"))), field(5, "l", inner))
    assert column_not_by_name(history(tmp_path, new, old)) == told


def test_a_damaged_one_is_named(tmp_path: Path) -> None:
    storage = history(tmp_path)
    (tmp_path / ".hoodie/.schema/20260102000000000_20260102000000001.schemacommit").write_text("{")
    with pytest.raises(CorruptFileError, match="20260102000000000_20260102000000001.schemacommit"):
        column_not_by_name(storage)
