"""A merge continues the bloom filter of the file before: every key of the file is in it, whatever happened."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.file_group import base_file
from tagstream.table.file_group.base_file import BLOOM_KEY, BLOOM_KEYS_KEY, BLOOM_TYPE_KEY, BloomBefore, read_footer
from tagstream.table.file_group.bloom import SIMPLE, BloomParams
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.write.write_context import WriterOptions
from tests.table.writer import Row, Writer

SIZES = [BloomParams(SIMPLE, 400, 1e-6), BloomParams(num_entries=100, fpp=1e-6, dynamic_max_entries=1_000)]


def row(n: int, ver: int) -> Row:
    return {"id": f"k{n:05d}", "part": "p", "ver": ver, "name": "n", "amount": 0.5}


def newest(writer: Writer) -> dict[str, Path]:
    """The newest base file of each file group."""
    view = writer.table.view(writer.table.timeline())
    slices = view.latest_slices("p", sorted({file_id for _, file_id in writer.where.values()}))
    return {file_id: Path(writer.table.base_path, str(s.base_path)) for file_id, s in slices.items() if s.base_path}


def counts(path: Path) -> dict[str, int]:
    """What a footer says of its filter's keys."""
    found: dict[str, int] = json.loads(pq.read_metadata(path).metadata[BLOOM_KEYS_KEY])
    return found


def new_writer(folder: Path, bloom: BloomParams) -> Writer:
    return Writer.create(folder, COPY_ON_WRITE, options=WriterOptions(bloom=bloom), groups=1)


@pytest.mark.parametrize("bloom", SIZES, ids=["simple", "dynamic"])
def test_random_merges(bloom: BloomParams, tmp_path: Path) -> None:
    writer, chance = new_writer(tmp_path, bloom), random.Random(6)
    writer.write([row(n, 0) for n in range(150)])
    continued = new = 0
    gone_before = 0
    for version in range(1, 30):
        some = {n: row(n, version) for n in chance.sample(range(600), 12)}
        gone = chance.sample(sorted(key for key in writer.live if int(key[1:]) not in some), chance.choice([0, 1, 3]))
        writer.write(list(some.values()), gone)
        (path,) = newest(writer).values()
        footer, keys = read_footer(writer.table.storage, str(path.relative_to(writer.table.base_path))), counts(path)
        assert footer.bloom is not None
        assert footer.bloom.might_contain(pa.array(sorted(writer.live))).all()
        assert not footer.bloom.might_contain(pa.array([f"other{n}" for n in range(50)])).all()
        assert footer.bloom.fits(bloom, keys["added"])
        assert keys["added"] - keys["gone"] == len(writer.live)
        assert keys["gone"] <= 0.05 * keys["added"] + 3
        continued += keys["gone"] > gone_before or keys["gone"] > 0
        new += keys["gone"] < gone_before
        gone_before = keys["gone"]
    assert continued > 5
    assert new > 1, "with a twentieth of the keys gone, a new filter is made"


def test_only_new_keys_are_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = new_writer(tmp_path, SIZES[0])
    writer.write([row(n, 0) for n in range(100)])
    hashed: list[str] = []
    add = base_file.BloomBuilder.add
    monkeypatch.setattr(
        base_file.BloomBuilder, "add", lambda self, keys: (hashed.extend(keys.to_pylist()), add(self, keys))
    )
    writer.write([row(n, 1) for n in (1, 2, 100, 101)], ["k00005"])
    assert hashed == ["k00100", "k00101"]


@pytest.mark.parametrize(
    "what",
    ["another writer's", "another size", "another kind", "damaged", "damaged counts", "other counts", "many deletes"],
)
def test_filters_that_are_not_continued(what: str, tmp_path: Path) -> None:
    """The next file has a filter of its keys alone."""
    writer = new_writer(tmp_path, SIZES[1])
    writer.write([row(n, 0) for n in range(150)])
    (path,) = newest(writer).values()
    footer = pq.read_metadata(path)
    assert BloomBefore.of(footer, SIZES[1], 1) is not None
    changed = {
        "another writer's": {BLOOM_KEYS_KEY: None},
        "damaged": {BLOOM_KEY: b"AAAA"},
        "damaged counts": {BLOOM_KEYS_KEY: b"[3]"},
        "other counts": {BLOOM_KEYS_KEY: b'{"added": 99, "gone": 0}'},
        "another kind": {BLOOM_TYPE_KEY: None},
    }.get(what)
    if changed is not None:
        rows = pq.read_table(path)
        entries = {**(footer.metadata or {}), **changed}
        with pq.ParquetWriter(path, rows.schema.remove_metadata(), store_schema=False) as out:
            out.write_table(rows.replace_schema_metadata(None))
            out.add_key_value_metadata({k: v for k, v in entries.items() if v is not None})
    bloom = replace(SIZES[1], num_entries=90) if what == "another size" else SIZES[1]
    gone = [f"k{n:05d}" for n in range(20 if what == "many deletes" else 1)]
    assert BloomBefore.of(pq.read_metadata(path), bloom, len(gone)) is None
    writer.with_options(bloom=bloom).write([row(3_000, 1)], gone)
    (path,) = newest(writer).values()
    assert counts(path) == {"added": len(writer.live), "gone": 0}
