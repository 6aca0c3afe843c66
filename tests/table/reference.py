"""The tables of tests/fixtures/tables, unpacked where a test wants them, and their rows in comparable form."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.table.schema.schema import META_COLUMNS
from tests.support.paths import TABLES

FOLDER = TABLES
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz"))
# Keys of these are in two partitions: an index of all partitions cannot hold them.
BY_PARTITION = {"mor_v9_partitioned_record_index"}


def unpack(name: str, folder: Path) -> Path:
    """Unpack a reference table below ``folder``; returns the table's base path."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name / "table"


def expected(base_path: Path, file: str = "expected.json") -> dict[str, Any]:
    """What Hudi itself reads from the table."""
    content: dict[str, Any] = json.loads((base_path.parent / file).read_text())
    return content


def expected_records(base_path: Path, file: str = "expected.json") -> list[tuple[Any, ...]]:
    """(partition path, record key, file id, row) of every expected row, sorted."""
    records = expected(base_path, file)["records"]
    return sorted(
        (r["_hoodie_partition_path"], r["_hoodie_record_key"], r["file_id"], _text(r["row"])) for r in records
    )


def records(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The same of rows read with the meta columns."""
    return sorted(
        (
            row["_hoodie_partition_path"],
            row["_hoodie_record_key"],
            row["_hoodie_file_name"].split("_")[0],
            _text({name: _plain(value) for name, value in row.items() if name not in META_COLUMNS}),
        )
        for row in rows.to_pylist(maps_as_pydicts="strict")
    )


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | str() | int() | float():
            return value
        case decimal.Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(k): _plain(v) for k, v in value.items()}
        case list():
            return [_plain(v) for v in value]
    raise TypeError(f"no plain form for {type(value)}")
