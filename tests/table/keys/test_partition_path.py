"""Values of partition columns read back from a path, as Hudi on Spark reads them (Hudi 0.15 and 1.2 were asked)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tagstream.table.keys.keys import DEFAULT_PARTITION, KeyGenerator, values_of_path


@pytest.mark.parametrize(
    ("path", "fields", "values"),
    [
        ("2024", ("day",), ("2024",)),
        ("day=2024", ("day",), ("2024",)),
        (f"day={DEFAULT_PARTITION}", ("day",), (None,)),
        (DEFAULT_PARTITION, ("day",), (None,)),
        ("x y%2Fz%2541", ("day",), ("x y/z%41",)),
        ("x y/z%41", ("day",), ("x y/z%41",)),  # of several folders all of it, as it is
        ("day=2024/01", ("day",), ("2024/01",)),
        (f"day=1/zone={DEFAULT_PARTITION}", ("day", "zone"), ("1", None)),
        ("1/2", ("day", "zone"), ("1", "2")),
        ("1/2/3", ("day", "zone"), None),
        ("", ("day",), (None,)),
    ],
)
def test_values_of_paths(path: str, fields: tuple[str, ...], values: tuple[str | None, ...] | None) -> None:
    assert values_of_path(path, fields) == values


@pytest.mark.parametrize("hive", [True, False])
@pytest.mark.parametrize("encode", [True, False])
def test_a_value_comes_back_from_its_path_or_is_named(hive: bool, encode: bool) -> None:
    values = ["a", "a b", "a/b", "a%2Fb", "a%b", "a=b", "50%", "ü", None, "", DEFAULT_PARTITION]
    for fields in (("s",), ("s", "n")):
        generator = KeyGenerator.create(None, ["id"], fields, hive, encode)
        rows = pa.table({"s": pa.array(values), "n": pa.array([7] * len(values), pa.int32())})
        paths = generator.partition_paths(rows)
        lost = [reason is not None for reason in generator.lost_values(rows, paths).to_pylist()]
        for value, path, is_lost in zip(values, paths.to_pylist(), lost, strict=True):
            found = values_of_path(path, fields)
            # Hudi has one folder for a null and an empty text
            assert is_lost == (found is None or (found[0] or "") != (value or "")), (value, path)
        named = {value for value, is_lost in zip(values, lost, strict=True) if is_lost}
        always = {DEFAULT_PARTITION}
        if encode:
            assert named == always
        else:
            assert named == always | {"a%2Fb"} | (set() if hive else {"a=b"}) | ({"a/b"} if len(fields) > 1 else set())
