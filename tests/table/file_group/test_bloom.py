"""Bloom filters against bytes of the real classes."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.bloom import (
    DYNAMIC_V0,
    SIMPLE,
    BloomBuilder,
    BloomFilter,
    BloomParams,
    kind_of,
    murmur2,
)
from tests.support import paths

VECTORS = json.loads((paths.VECTORS / "bloom.json").read_text())


def params_of(vector: dict[str, Any]) -> BloomParams:
    return BloomParams(vector["type"], vector["num_entries"], vector["fpp"], vector["dynamic_max_entries"])


def build(params: BloomParams, *batches: list[str]) -> str:
    builder = BloomBuilder(params)
    for batch in batches:
        builder.add(pa.array(batch, pa.string()))
    return builder.to_base64()


@pytest.mark.parametrize("seed", [0, 1, -5])
def test_murmur2(seed: int) -> None:
    rows = VECTORS["murmur2"]
    assert murmur2(pa.array([row["key"] for row in rows]), seed).tolist() == [row[f"seed{seed}"] for row in rows]


def murmur2_one(data: bytes, seed: int) -> int:
    """The Java loop, byte by byte."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (seed ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    signed = [byte - 256 if byte > 127 else byte for byte in data]
    left = len(data) - whole
    for back in range(left, 0, -1):
        h ^= (signed[-back] << 8 * (back - 1)) & mask
    if left:
        h = h * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(-(2**31), 2**31 - 1))
def test_murmur2_of_mixed_lengths(keys: list[bytes], seed: int) -> None:
    assert murmur2(pa.array(keys, pa.binary()), seed).tolist() == [murmur2_one(key, seed) for key in keys]


def test_murmur2_of_a_slice() -> None:
    keys = pa.array(["aaaaaaaa", "b", "ccc", "dddddd"])
    assert murmur2(keys.slice(1, 2), 7).tolist() == murmur2(pa.array(["b", "ccc"]), 7).tolist()


@pytest.mark.parametrize("vector", VECTORS["filters"], ids=lambda v: f"{v['type']}-{v['num_entries']}-{len(v['in'])}")
def test_filter_bytes_are_those_of_hudi(vector: dict[str, Any]) -> None:
    params = params_of(vector)
    assert params.bit_size == vector["bit_size"] and params.num_hashes == vector["num_hashes"]
    assert build(params, vector["in"]) == vector["base64"]
    # the bytes do not depend on how the keys came in
    assert build(params, vector["in"][:9], [], vector["in"][9:]) == vector["base64"]


@pytest.mark.parametrize("vector", VECTORS["filters"], ids=lambda v: f"{v['type']}-{v['num_entries']}-{len(v['in'])}")
def test_membership_is_that_of_hudi(vector: dict[str, Any]) -> None:
    bloom = BloomFilter.from_base64(vector["base64"], vector["type"], "a vector")
    assert len(bloom.rows) == vector["rows"]
    assert bloom.might_contain(pa.array(vector["in"])).all()
    assert not bloom.might_contain(pa.array(vector["not_in"])).any()
    absent = [f"absent-{i}" for i in range(300)]
    found = bloom.might_contain(pa.array(absent))
    assert [key for key, hit in zip(absent, found, strict=True) if hit] == vector[
        "false_positives_among_absent_0_to_299"
    ]


@pytest.mark.parametrize("size", VECTORS["sizes"], ids=lambda v: f"{v['num_entries']}-{v['fpp']}")
def test_sizes(size: dict[str, Any]) -> None:
    params = BloomParams(num_entries=size["num_entries"], fpp=size["fpp"])
    assert (params.bit_size, params.num_hashes) == (size["bit_size"], size["num_hashes"])


@given(st.lists(st.text(min_size=1), max_size=60), st.sampled_from([SIMPLE, DYNAMIC_V0]))
def test_no_key_is_ever_denied(keys: list[str], kind: str) -> None:
    text = build(BloomParams(kind, 8, 0.1, 20), keys)
    bloom = BloomFilter.from_base64(text, kind, "a test")
    assert bloom.might_contain(pa.array(keys, pa.string())).all()


def test_a_default_filter_of_many_keys() -> None:
    keys = [f"trip-{i:06d}" for i in range(70_000)]
    text = build(BloomParams(), keys)
    bloom = BloomFilter.from_base64(text, DYNAMIC_V0, "a test")
    assert len(bloom.rows) == 2
    assert bloom.might_contain(pa.array(keys)).all()
    assert not bloom.might_contain(pa.array([f"other-{i}" for i in range(50_000)])).any()
    fill = float(np.mean(bloom.rows[0]))
    assert 0.49 < fill < 0.51


@pytest.mark.parametrize("kind", [SIMPLE, DYNAMIC_V0])
def test_keys_behind_a_filter_that_is_full(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once every bit is set keys are counted only: the text is what hashing all of them gives."""
    params = BloomParams(kind, 10, 0.01, 25)
    keys = [f"key-{n}" for n in range(100_000)]
    found = build(params, keys[:70_000], keys[70_000:])
    assert all(row.all() for row in BloomFilter.from_base64(found, kind, "here").rows)
    monkeypatch.setattr(BloomBuilder, "_says_nothing", lambda _: False)
    assert found == build(params, keys)


def test_an_empty_filter() -> None:
    bloom = BloomFilter.from_base64(build(BloomParams()), DYNAMIC_V0, "a test")
    assert not bloom.might_contain(pa.array(["a"])).any()
    assert len(bloom.might_contain(pa.array([], pa.string()))) == 0


@pytest.mark.parametrize("kind", [SIMPLE, DYNAMIC_V0])
def test_cut_or_garbled_filters_are_corrupt(kind: str) -> None:
    text = build(BloomParams(kind, 10, 0.01, 20), ["a"])
    data = base64.b64decode(text)
    for bad in (base64.b64encode(data[:20]), base64.b64encode(data[:-1]), text[:-3], "!!!!"):
        with pytest.raises(CorruptFileError, match=r"file\.parquet"):
            BloomFilter.from_base64(bad, kind, "file.parquet")


@pytest.mark.parametrize("keys", [[], ["a"], [f"k{n}" for n in range(35)]])
@pytest.mark.parametrize("entries", [1, 10, 60_000])
def test_the_kind_is_known_by_the_form(entries: int, keys: list[str]) -> None:
    for kind, other in ((SIMPLE, DYNAMIC_V0), (DYNAMIC_V0, SIMPLE)):
        text = build(BloomParams(kind, entries, 0.01, 2 * entries), keys)
        assert kind_of(text) == kind_of(text.encode()) == kind
        if kind == SIMPLE:  # without a row it would deny every key
            with pytest.raises(CorruptFileError, match="it has the form of SIMPLE, but its type is DYNAMIC_V0"):
                BloomFilter.from_base64(text, other, "f")
    assert kind_of("AAAA") == kind_of("A") == DYNAMIC_V0


@pytest.mark.parametrize("vector", VECTORS["filters"], ids=lambda v: f"{v['type']}-{v['num_entries']}-{len(v['in'])}")
def test_the_kind_of_hudis_filters(vector: dict[str, Any]) -> None:
    assert kind_of(vector["base64"]) == vector["type"]


def test_filters_of_another_kind_are_refused() -> None:
    old = base64.b64encode(b"\x00\x00\x00\x07" + bytes(20))
    with pytest.raises(UnsupportedTableError, match="very old Hudi"):
        BloomFilter.from_base64(old, SIMPLE, "f")
    with pytest.raises(UnsupportedTableError, match="DYNAMIC_V9"):
        BloomFilter.from_base64(build(BloomParams()), "DYNAMIC_V9", "f")


def test_arguments() -> None:
    with pytest.raises(ValueError, match="CUCKOO"):
        BloomParams("CUCKOO")
    with pytest.raises(ValueError, match="fpp"):
        BloomParams(fpp=1.5)
    with pytest.raises(ValueError, match="null"):
        build(BloomParams(), ["a", None])  # type: ignore[list-item]
