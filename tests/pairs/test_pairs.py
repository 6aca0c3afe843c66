"""The pairs themselves: arrays that have every pair, an oracle that finds what is wrong; and a small part of a seed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.table.errors import ConfigError
from tests.pairs.case import differences
from tests.pairs.covering import completed, covering
from tests.pairs.edits import LINES, OTHERS, drawn_edits, known_line, one_edit
from tests.pairs.events import BATCHES, NOWHERE, Event, events_of
from tests.pairs.options import OPTIONS, REFUSALS, Pair, all_pairs, lines_of, pairs_of, refused_pairs
from tests.pairs.oracle import Oracle
from tests.pairs.outcome import Outcome, one_case, summary
from tests.pairs.public_settings import RIGHT, Settings, one_public, public_settings
from tests.pairs.run import drawn

PLAIN = {name: next(iter(values)) for name, values in OPTIONS.items()} | {"ordering": "one", "layout": "text"}
NAMES = {name: list(values) for name, values in OPTIONS.items()}
SEED, PARTS = 1, 12
# Of the cases of the seed, those that the first tier starts: a state index and files, and a DataFrame without one.
FIRST = (2, 3)


@pytest.mark.extended("it looks at the whole of the sources, as `make check` does")
def test_every_pair_that_may_be_is_in_each_array_and_no_other() -> None:
    allowed = set(all_pairs()) - refused_pairs().keys()
    for seed in (1, 2):
        cases = drawn(seed)
        of_cases = [set(pairs_of(case)) for case in cases]
        assert set().union(*of_cases) == set(all_pairs())
        started = [pairs for case, pairs in zip(cases, of_cases, strict=True) if not lines_of(case)]
        assert set().union(*started) == allowed
        assert all(list(case) == list(OPTIONS) for case in cases)
    assert drawn(1) == drawn(1) != drawn(2)


def test_each_refused_pair_has_a_case_of_its_own() -> None:
    refused = refused_pairs()
    alone = [found for case in drawn(SEED) if (found := [pair for pair in pairs_of(case) if pair in refused])]
    assert sorted(map(sorted, refused)) == sorted(sorted(pair) for (pair,) in alone)
    assert len(refused) == sum(len(list(refusal.pairs())) for refusal in REFUSALS)


def test_arrays_of_any_options_have_every_pair() -> None:
    for seed in range(40):
        random = Random(seed)
        options = {f"o{n}": [f"v{k}" for k in range(random.randint(1, 5))] for n in range(random.randint(2, 6))}
        pairs: list[Pair] = [
            frozenset({(a, v), (b, w)})
            for a in options
            for b in options
            if a < b
            for v in options[a]
            for w in options[b]
        ]
        refused = set(random.sample(pairs, len(pairs) // 8))
        try:
            cases = covering(options, refused, seed, tries=5)
        except ValueError:  # a pair whose options leave none of a third one's values
            lonely = [p for p in pairs if p not in refused and completed(options, refused, dict(p), random) is None]
            assert lonely
            continue
        covered = {pair for case in cases for pair in pairs_of(case)}
        assert covered == set(pairs) - refused


def test_the_oracle_by_partition_and_by_key() -> None:
    by_key, by_partition = Oracle(PLAIN), Oracle(PLAIN | {"index": "BLOOM"})
    for batch in events_of(PLAIN):
        by_key.batch(batch)
        by_partition.batch(batch)
    assert {path for path, key in by_key.rows() if key == "k1"} == {"Saint-Gall & Co"}
    assert {path for path, key in by_partition.rows() if key == "k1"} == {"Saint-Gall & Co", "Chur.1"}
    assert by_key.rows()["Basel", "k3"]["v"] == "new"


def test_rows_that_are_wrong_are_named() -> None:
    oracle = Oracle(PLAIN)
    oracle.batch([Event(1, 0, 1, "a"), Event(2, 0, 1, "b")])
    right = [
        {"_hoodie_partition_path": path, "_hoodie_record_key": key, **row} for (path, key), row in oracle.rows().items()
    ]
    assert differences("x", pa.Table.from_pylist(right), oracle.rows()) == []
    wrong = [{**right[0], "v": "z"}, {**right[0], "_hoodie_record_key": "k9"}, {**right[0], "v": "z"}]
    assert differences("x", pa.Table.from_pylist(wrong), oracle.rows()) == [
        "x: ('Basel', 'k1') is there twice",
        "x: ('Basel', 'k2') is lost",
        "x: ('Basel', 'k9') must not be there",
        "x: ('Basel', 'k1').v is 'z', 'a' is right",
    ]


def test_a_summary_counts_and_gives_what_failed_again() -> None:
    told = summary([Outcome("a", {}), Outcome("b", {}, "no"), Outcome("c", {"k": "v"}, None, ("lost",))])
    assert told.splitlines() == [
        "cases 3: right 1, refused 1, failed 1", "  refused   1: no", "failed: c", "  lost", "    k=v",
    ]  # fmt: skip


def test_events_have_all_that_goes_wrong_in_a_stream() -> None:
    before: dict[int, Event] = {}
    found = set()
    for batch in BATCHES:
        in_batch: dict[int, Event] = {}
        for event in batch:
            known, twice = before.get(event.key), in_batch.get(event.key)
            found |= {"twice in a batch"} if twice else set()
            found |= {"an older one behind a newer one in a batch"} if twice and event.ts < twice.ts else set()
            found |= {"a null partition"} if event.place == NOWHERE else set()
            if known is not None:
                order = "late" if event.ts < known.ts else "equal" if event.ts == known.ts else "newer"
                place = "another partition" if event.place != known.place else "its partition"
                found.add(f"{order}{', of a deleted key' if known.deleted else ''}, {place}")
                found |= {f"{order} delete"} if event.deleted else set()
            elif event.deleted and twice is None:
                found.add("delete of an unknown key")
            in_batch[event.key] = event
        before |= in_batch
    assert found == {
        "twice in a batch", "an older one behind a newer one in a batch", "a null partition", "delete of an unknown key",
        "late, its partition", "late, another partition", "equal, its partition", "newer, its partition",
        "newer, another partition", "late, of a deleted key, its partition", "newer, of a deleted key, its partition",
        "newer delete", "late delete",
    }  # fmt: skip


@pytest.mark.spark
def test_pairs_that_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    """Each in one line that names the key and what to do; nothing is made."""
    cases = [case for case in drawn(SEED) if lines_of(case)]
    outcomes = [one_case(spark, tmp_path / str(n), case) for n, case in enumerate(cases)]
    assert [outcome.kind for outcome in outcomes] == ["refused"] * len(cases), summary(outcomes)


@pytest.mark.extended("more kinds of tables", first=("2",))
@pytest.mark.spark
@pytest.mark.parametrize("number", FIRST)
def test_a_new_table_of_a_case(tmp_path: Path, spark: SparkSession, number: int) -> None:
    outcome = one_case(spark, tmp_path / "case", drawn(SEED)[number])
    assert outcome.kind == "right", summary([outcome])


@pytest.mark.spark
def test_public_settings_that_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    found = [settings for settings in public_settings() if settings.wanted != RIGHT]
    outcomes = [one_public(spark, tmp_path / str(n), settings) for n, settings in enumerate(found)]
    assert [outcome.kind for outcome in outcomes] == ["refused"] * len(found), summary(outcomes)


@pytest.mark.extended(
    "more of the settings that public projects have", first=("two partition fields, complex by type",)
)
@pytest.mark.spark
@pytest.mark.parametrize("settings", [s for s in public_settings() if s.wanted == RIGHT], ids=lambda s: s.name)
def test_public_settings(tmp_path: Path, spark: SparkSession, settings: Settings) -> None:
    outcome = one_public(spark, tmp_path / "case", settings)
    assert outcome.kind == "right", summary([outcome])


def test_edits_are_of_every_setting() -> None:
    edits = drawn_edits(SEED, 2 * (len(OPTIONS) + len(OTHERS)))
    assert {name for edit in edits for name in (*edit.changed, *edit.others)} == {*OPTIONS, *OTHERS} - {"starts"}
    assert all(not lines_of(edit.values) for edit in edits)
    assert edits == drawn_edits(SEED, len(edits)) != drawn_edits(SEED + 1, len(edits))


def test_a_refusal_that_is_not_known_is_a_failure() -> None:
    several = "2 settings prevent the start of this job:\n  {0}\n  {0}"
    known = (
        "table /t has hoodie.table.name=a, but the job has b (c); remove the option, or set another --target-base-path"
    )
    assert known_line(ConfigError(known), 1) == known_line(ConfigError(several.format(known)), 2) == LINES[0]
    assert known_line(ConfigError(several.format(known)), 1) is None
    assert known_line(ConfigError("it does not work"), 1) is None
    assert known_line(ConfigError(f"{known}\nwhy"), 2) is None


@pytest.mark.extended("tables whose settings are edited: some seconds each")
@pytest.mark.spark
def test_edited_settings(tmp_path: Path, spark: SparkSession) -> None:
    edits = drawn_edits(SEED, 5)
    outcomes = [one_edit(spark, tmp_path / str(n), edit) for n, edit in enumerate(edits)]
    assert all(outcome.kind != "failed" for outcome in outcomes), summary(outcomes)


@pytest.mark.extended("every case of one seed: half a minute for each part of them")
@pytest.mark.spark
@pytest.mark.parametrize("part", range(PARTS))
def test_new_tables_of_a_whole_seed(tmp_path: Path, spark: SparkSession, part: int) -> None:
    cases = [case for case in drawn(SEED) if not lines_of(case)][part::PARTS]
    outcomes = [one_case(spark, tmp_path / str(n), case) for n, case in enumerate(cases)]
    assert all(outcome.kind == "right" for outcome in outcomes), summary(outcomes)
