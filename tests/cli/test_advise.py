"""``index advise``: its numbers against what the events themselves say."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.cli.advise import INDEXES, run_advise
from tagstream.cli.advise_measures import Measures
from tagstream.cli.main import main
from tagstream.cli.parser import parser
from tagstream.cli.text_output import TerminalOutput
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.schema.schema import META_COLUMNS
from tests.cli.running import run, run_json, state_of
from tests.table.reference import BY_PARTITION, NAMES, unpack
from tests.table.writer import SCHEMA, Row, Writer, row

FIXTURES = sorted({*NAMES} - BY_PARTITION)


@dataclass(frozen=True)
class Change:
    """One line of a sample for a table of ``tests.table.writer``; a deleted row may name no partition."""

    key: str
    part: str | None
    ver: int
    deleted: bool = False

    def line(self) -> str:
        record = {"id": self.key, "part": self.part, "ver": self.ver, "name": "n", "amount": 1.5}
        return json.dumps({**record, "_hoodie_is_deleted": True} if self.deleted else record)


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def changes(count: int, keys: int, seed: int) -> list[Change]:
    """Updates, inserts, moves, deletes and late events of ``keys`` keys, of which the even ones are in the table."""
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        number, deleted = rng.randrange(keys), rng.random() < 0.15
        part = f"p{number % 3}" if rng.random() < 0.7 else f"p{rng.randrange(4)}"
        nowhere = deleted and rng.random() < 0.5
        out.append(Change(f"k{number}", None if nowhere else part, rng.randrange(1, 200), deleted))
    return out


def table_rows(keys: int) -> list[Row]:
    return [row(n, f"p{n % 3}", 100) for n in range(0, keys, 2)]


def oracle(sample: Sequence[Change], live: dict[str, Row]) -> dict[str, int]:
    """The counts by plain loops: per key the greatest version decides, the later of equal ones."""
    newest: dict[str, Change] = {}
    upsert_places: dict[str, set[str | None]] = {}
    for change in sample:
        if change.key not in newest or change.ver >= newest[change.key].ver:
            newest[change.key] = change
        if not change.deleted:
            upsert_places.setdefault(change.key, set()).add(change.part)
    out = dict.fromkeys(("updates", "inserts", "moves", "deletions", "late", "unknown_deletes", "doubled"), 0)
    for key, change in newest.items():
        there = live.get(key)
        if there is None:
            name = "unknown_deletes" if change.deleted else "inserts"
        elif change.ver < there["ver"]:
            name = "late"
        elif change.deleted:
            name = "deletions"
        else:
            name = "updates" if change.part == there["part"] else "moves"
        out[name] += 1
        places = upsert_places.get(key, set()) | ({there["part"]} if there else set())
        out["doubled"] += len(places) > 1
    return {
        **out,
        "records": len(sample),
        "keys": len(newest),
        "duplicates": len(sample) - len(newest),
        "deletes": sum(change.deleted for change in sample),
        "late_records": sum(c.key in live and c.ver < live[c.key]["ver"] for c in sample),
        "partitions_touched": len({c.part for c in sample if c.part is not None}),
        "partitions_new": len({c.part for c in sample if c.part is not None} - {r["part"] for r in live.values()}),
    }


@pytest.mark.parametrize(
    ("table_type", "inserts_to_base_files"), [(COPY_ON_WRITE, True), (MERGE_ON_READ, True), (MERGE_ON_READ, False)]
)
def test_measures_are_those_of_the_events(table_type: str, inserts_to_base_files: bool, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, table_type).with_options(inserts_to_base_files=inserts_to_base_files)
    writer.write(table_rows(300))
    writer.write([row(n, f"p{n % 3}", 120) for n in range(0, 60, 2)], deletes=["k100", "k102"])
    sample = changes(700, 330, seed=3)
    source = tmp_path / "sample"
    source.mkdir()
    half = len(sample) // 2
    for number, part in enumerate((sample[:half], sample[half:])):
        # the first by time comes second by name
        file = write_lines(source / f"{9 - number}.json", [*(c.line() for c in part), "", "  "])
        os.utime(file, (1000 + number, 1000 + number))
    write_lines(source / "_ignored.json", ["x"])
    before = state_of(tmp_path)
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", source)
    assert state_of(tmp_path) == before
    expected = oracle(sample, writer.live)
    assert {name: found[name] for name in expected} == expected
    assert min(expected[name] for name in ("updates", "inserts", "moves", "deletions", "late", "unknown_deletes")) > 3
    assert {f.name for f in fields(Measures)} <= set(found)
    assert sum(o["keys"] for o in found["outcomes"]) == found["keys"]
    # what a log deletes from a base file is not known without reading both
    hidden = 2 if table_type == MERGE_ON_READ and inserts_to_base_files else 0
    assert (found["rows"], found["partitions"], found["keys_only_in_logs"] > 0) == (
        len(writer.live) + hidden,
        3,
        not inserts_to_base_files,
    )
    groups = {writer.where[c.key] for c in sample if c.key in writer.where}
    assert (found["file_groups"], found["file_groups_touched"]) == (len(set(writer.where.values())), len(groups))
    assert (found["sample_files"], found["bad"], found["keys_twice"], found["sample_cut"]) == (2, 0, 0, False)
    assert found["advice"] == "STATE"
    assert found["properties"] == {"hoodie.index.type": "STATE", "index.global.enabled": "true"}
    by_name = {r["index"]: r for r in found["ranking"]}
    assert set(by_name) == set(INDEXES)
    assert f"{expected['doubled']:,} of {expected['keys']:,} keys" in by_name["BLOOM"]["reason"]


def ordered_table(folder: Path) -> Writer:
    """Eight partitions of two files with key ranges of their own, of 100 rows in all each."""
    writer = Writer.create(folder, COPY_ON_WRITE, groups=1)
    writer.write([row(f"{n:04d}", f"d{n // 100}", 10) for n in range(800)])
    return writer


def files_of(writer: Writer) -> list[tuple[str, str, str, int, int]]:
    """(partition, least key, greatest key, bytes of key and ordering columns, bytes of the filter), by Parquet's reader."""
    out = []
    for path in sorted(Path(writer.table.base_path).rglob("*.parquet")):
        metadata = pq.read_metadata(path)
        keys = pq.read_table(path, columns=["_hoodie_record_key"]).column(0).to_pylist()
        chunks = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
        size = sum(c.total_compressed_size for c in chunks if c.path_in_schema in ("_hoodie_record_key", "ver"))
        bloom = len(metadata.metadata[b"org.apache.hudi.bloomfilter"])
        out.append((path.parent.name, min(keys), max(keys), size, bloom))
    return out


def test_ordered_keys_of_one_partition_fit_bloom(tmp_path: Path) -> None:
    writer = ordered_table(tmp_path)
    sample = [Change(f"k{n:04d}", "d7", 20) for n in range(720, 780)]
    sample_file = write_lines(tmp_path / "s.json", (c.line() for c in sample))
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample_file)
    files = files_of(writer)
    hits = {c.key: sum(low <= c.key <= high for _, low, high, _, _ in files) for c in sample}
    assert found["files_of_key_mean"] == round(sum(hits.values()) / len(hits), 2) == 1
    (last,) = [f for f in files if f[0] == "d7"]
    assert (found["base_files"], found["own_base_files"]) == (len(files), 1)
    assert (found["own_files_left"], found["own_comparisons"], found["own_filter_bytes"]) == (1, 60, last[4])
    assert found["simple_bytes"] == last[3]
    assert found["global_simple_bytes"] == sum(f[3] for f in files)
    assert (found["rising_share"], found["updates"], found["inserts"]) == (1, 60, 0)
    assert found["advice"] == "BLOOM"
    assert [r["index"] for r in found["ranking"][:2]] == ["BLOOM", "STATE"]


def test_random_keys_in_all_files_do_not(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=4)
    numbers = random.Random(5).sample(range(100_000), 600)
    writer.write([row(f"{n:05d}", f"p{i % 3}", 10) for i, n in enumerate(numbers)])
    sample = [Change(f"k{n:05d}", f"p{i % 3}", 20) for i, n in enumerate(numbers[:200])]
    sample_file = write_lines(tmp_path / "s.json", (c.line() for c in sample))
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample_file)
    files = files_of(writer)
    hits = sorted(sum(low <= c.key <= high for _, low, high, _, _ in files) for c in sample)
    assert found["files_of_key_mean"] == round(sum(hits) / len(hits), 2) > 6
    assert found["comparisons"] == sum(hits)
    own = sum(low <= c.key <= high for c in sample for part, low, high, _, _ in files if part == c.part)
    assert found["own_comparisons"] == own
    assert found["files_left"] == found["files_read"] == len(files) == 12
    assert 0.4 < found["rising_share"] < 0.6
    assert (found["moves"], found["doubled"], found["updates"]) == (0, 0, 200)
    ranking = {r["index"]: r["fits"] for r in found["ranking"]}
    assert (ranking["BLOOM"], ranking["SIMPLE"], found["advice"]) == (False, True, "STATE")


def test_partition_and_key_together(tmp_path: Path) -> None:
    writer = ordered_table(tmp_path)
    lines = [Change("k0001", "d0", 20).line(), Change("k0001", "d5", 20).line(), Change("k0002", None, 5, True).line()]
    sample = write_lines(tmp_path / "s.json", lines)
    conf = ("--hoodie-conf", "index.global.enabled=false")
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample, *conf)
    assert (found["keys"], found["updates"], found["inserts"], found["moves"], found["doubled"]) == (3, 1, 1, 0, 0)
    assert found["unknown_deletes"] == 1, "a delete that names no partition is one of the partition without a name"
    fits = {r["index"]: r["fits"] for r in found["ranking"]}
    assert not any(fits[name] for name in ("GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY"))
    props = tmp_path / "s.properties"
    props.write_text("index.global.enabled=false\n")
    again = run_json(
        "index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample, "--props", props
    )
    assert again == found


def test_bad_lines_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = ordered_table(tmp_path)
    good = Change("k0001", "d0", 20).line()
    at = ("index", "advise", "--target-base-path", writer.table.base_path, "--sample")
    sample = tmp_path / "s.json.gz"
    sample.write_bytes(gzip.compress("\n".join([good, "{not json", "", '{"id": "k1", "part": "d0"}', good]).encode()))
    found = run_json(*at, sample)
    assert (found["records"], found["bad"], found["duplicates"]) == (2, 2, 1)
    assert [(b["file"], b["line"]) for b in found["first_bad"]] == [(str(sample), 2), (str(sample), 4)]
    assert "not JSON" in found["first_bad"][0]["reason"]
    assert (run_json(*at, sample, "--limit", 1)["records"], run_json(*at, sample, "--limit", 1)["sample_cut"]) == (
        1,
        True,
    )
    assert run_json(*at, sample, "--limit", 0)["records"] == 2
    write_lines(tmp_path / "bad.json", ["[]"])
    run(*at, tmp_path / "bad.json", code=1)
    assert "no record of the sample" in capsys.readouterr().err
    write_lines(tmp_path / "empty.json", ["", " "])
    run(*at, tmp_path / "empty.json", code=1)
    assert "has no record; give a file or folder" in capsys.readouterr().err
    run(*at, tmp_path / "nothing.json", code=2)
    assert "no such file or folder" in capsys.readouterr().err
    sample.write_bytes(sample.read_bytes()[:30])
    run(*at, sample, code=1)
    assert "cannot be read" in capsys.readouterr().err


def test_a_table_without_commits(tmp_path: Path) -> None:
    table = Writer.create(tmp_path, COPY_ON_WRITE).table
    at = ("index", "advise", "--target-base-path", table.base_path, "--sample")
    inserts = write_lines(tmp_path / "s.json", (Change(f"k{n}", f"p{n % 3}", 1).line() for n in range(50)))
    found = run_json(*at, inserts)
    assert (found["empty_table"], found["inserts"], found["rows"], found["advice"]) == (True, 50, 0, "BUCKET")
    moving = write_lines(tmp_path / "m.json", (Change("k1", f"p{n}", n).line() for n in range(3)))
    found = run_json(*at, moving)
    assert (found["doubled"], found["advice"]) == (1, "STATE")
    assert "no completed write" in run(*at, moving)


def test_a_bucketed_table_stays_one(tmp_path: Path) -> None:
    path = unpack("mor_v6_bucket", tmp_path)
    rows = run_json("table", "rows", "--target-base-path", path, "--meta", "--limit", 0)["rows"]
    plain = [{k: v for k, v in r.items() if not k.startswith("_hoodie_")} for r in rows]
    sample = write_lines(tmp_path / "s.json", map(json.dumps, plain))
    found = run_json("index", "advise", "--target-base-path", path, "--sample", sample)
    assert (found["records"], found["bad"], found["inserts"]) == (len(rows), 0, 0)
    assert (found["bucket_count"], found["advice"]) == (4, "BUCKET")
    assert found["properties"]["hoodie.bucket.index.num.buckets"] == "4"
    assert [r["index"] for r in found["ranking"] if r["fits"]] == ["BUCKET"]


def test_a_table_without_an_ordering_field(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, settings={"ordering_fields": ()})
    writer.write([row(n, "p0", 100) for n in range(4)])
    lines = [Change("k1", "p0", 5).line(), Change("k2", "p1", 5).line(), Change("k2", "p0", 1, True).line()]
    sample = write_lines(tmp_path / "s.json", lines)
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample)
    # the later line wins, and nothing is late
    assert (found["updates"], found["deletions"], found["moves"], found["late"], found["late_records"]) == (
        1,
        1,
        0,
        0,
        0,
    )
    assert found["doubled"] == 1, "an index by partition would have left k2 in p1"


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("cow_v6_global_bloom_moves", "mor_v6_compaction_pending", "cow_v9_record_index", "mor_v9_services"),
)
@pytest.mark.parametrize("name", FIXTURES)
def test_the_rows_of_a_table_of_real_hudi_are_all_updates(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    rows = run_json("table", "rows", "--target-base-path", path, "--meta", "--limit", 0)["rows"]
    plain = [{k: v for k, v in r.items() if k not in META_COLUMNS} for r in rows]
    sample = write_lines(tmp_path / "s.json", map(json.dumps, plain))
    found = run_json("index", "advise", "--target-base-path", path, "--sample", sample)
    places = {(r["_hoodie_partition_path"], r["_hoodie_file_name"].lstrip(".").split("_")[0]) for r in rows}
    assert (found["records"], found["bad"], found["updates"]) == (len(rows), 0, len(rows))
    assert (found["moves"], found["doubled"], found["late_records"], found["keys_twice"]) == (0, 0, 0, 0)
    assert found["file_groups_touched"] == len(places)


def test_ordering_values_that_are_texts(tmp_path: Path) -> None:
    schema = SCHEMA.set(SCHEMA.get_field_index("ver"), pa.field("ver", pa.string()))
    writer = Writer.create(tmp_path, COPY_ON_WRITE, schema=schema)
    writer.write([{**row(n, "p0", 1), "ver": "m"} for n in range(4)])
    lines = [json.dumps({"id": f"k{n}", "part": "p0", "ver": ver}) for n, ver in enumerate(("é", "m", "b", "", "z"))]
    sample = write_lines(tmp_path / "s.json", lines)
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample)
    assert (found["updates"], found["late"], found["late_records"], found["inserts"]) == (2, 2, 2, 1)


@pytest.mark.table_versions(8, 9)  # version 6 has one
def test_several_ordering_fields(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, settings={"ordering_fields": ("ver", "name")})
    writer.write([row(n, "p0", 5, "m") for n in range(4)])
    events = [(4, "z"), (5, "a"), (5, "m"), (5, "n"), (6, "a")]
    lines = [json.dumps({"id": f"k{n}", "part": "p0", "ver": a, "name": b}) for n, (a, b) in enumerate(events)]
    sample = write_lines(tmp_path / "s.json", lines)
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample)
    assert (found["updates"], found["late"], found["late_records"], found["inserts"]) == (2, 2, 2, 1)


def test_rows_that_only_logs_hold_are_found(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    writer.with_options(inserts_to_base_files=True).write([row(n, "p0", 100) for n in range(30, 35)])
    writer.with_options(inserts_to_base_files=False).write([row(n, "p0", 100) for n in range(20)])
    sample = write_lines(tmp_path / "s.json", (Change(f"k{n}", "p0", 200).line() for n in range(20)))
    found = run_json("index", "advise", "--target-base-path", writer.table.base_path, "--sample", sample)
    assert (found["slices_only_logs"], found["base_files"], found["rows"]) == (0, 2, 5)
    assert (found["updates"], found["keys_only_in_logs"]) == (20, 20)


def test_people_see_it_folded_at_a_hundred_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = ordered_table(tmp_path)
    sample = write_lines(tmp_path / "s.json", [Change("k0001", "d1", 20).line(), "x"])
    argv = ["index", "advise", "--target-base-path", writer.table.base_path, "--sample", str(sample)]
    monkeypatch.setenv("COLUMNS", "100")
    shown = io.StringIO()
    assert run_advise(parser().parse_args(argv), TerminalOutput(shown)) == 0
    assert 90 < max(map(len, shown.getvalue().splitlines())) <= 100
    for text in (shown.getvalue(), run(*argv)):
        for wanted in ("distinct keys", "GLOBAL_SIMPLE", "hoodie.index.type=STATE", "bad record in"):
            assert wanted in text
    assert main(["index", "advise", "--sample", "x"]) == 2
    assert "--target-base-path" in capsys.readouterr().err
