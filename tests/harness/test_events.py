"""The generator makes what it says, and the oracle is the last event by (ordering value, position)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compare import compare
from tests.support.disorder import delayed, duplicated, shuffled
from tests.support.events import Event, Mix, generate, oracle, rows, write_files

COUNT = 20_000


@pytest.fixture(scope="module")
def stream() -> list[Event]:
    return list(generate(COUNT, Mix(keys=2_000, tombstones=0.02), seed=7))


def test_same_seed_same_events(stream: list[Event]) -> None:
    assert stream == list(generate(COUNT, Mix(keys=2_000, tombstones=0.02), seed=7))
    assert stream != list(generate(COUNT, Mix(keys=2_000, tombstones=0.02), seed=8))


def test_every_kind_of_trouble_is_in_the_stream(stream: list[Event]) -> None:
    found: Counter[str] = Counter()
    newest: dict[str, Event] = {}
    places: dict[str, list[str]] = {}
    for event in stream:
        last = newest.get(event.key)
        if event.is_tombstone:
            found["tombstone"] += 1
            continue
        assert event.ordering is not None
        if event.deleted and last is None:
            found["delete of an unknown key"] += 1
        if event.deleted and event.partition is None:
            found["delete without partition"] += 1
        if last is not None and last.ordering is not None:
            late = event.ordering < last.ordering
            found["late delete" if event.deleted else "late upsert"] += late
            found["late, elsewhere"] += late and event.partition != last.partition
            found["duplicate"] += event == last
            found["equal ordering"] += event.ordering == last.ordering and event != last
            if not late and not event.deleted and event.partition != last.partition:
                found["move"] += 1
                places.setdefault(event.key, []).append(str(event.partition))
        if last is None or event.ordering >= (last.ordering or 0):
            newest[event.key] = event
    found["chain"] = sum(len(path) >= 3 for path in places.values())
    assert {what: n for what, n in found.items() if n < 20} == {}
    assert len(found) == 10


@given(
    st.lists(
        st.builds(
            Event,
            key=st.sampled_from("ab"),
            partition=st.sampled_from(["p", "q"]),
            ordering=st.integers(0, 4),
            deleted=st.booleans(),
            name=st.text("xy", max_size=2),
        )
    )
)
def test_the_oracle_is_the_last_by_ordering_and_position(events: list[Event]) -> None:
    for global_index in (True, False):
        groups: dict[object, list[tuple[int, int, Event]]] = {}
        for place, event in enumerate(events):
            identity = event.key if global_index else (event.partition, event.key)
            groups.setdefault(identity, []).append((event.ordering or 0, place, event))
        winners = {identity: max(group, key=lambda each: each[:2])[2] for identity, group in groups.items()}
        live = {identity: event for identity, event in winners.items() if not event.deleted}
        assert oracle(events, global_index=global_index) == live


def test_a_tombstone_takes_the_greatest_ordering_so_far() -> None:
    upsert, tombstone = Event("a", "p", 5), Event("a", None, None, deleted=True)
    assert oracle([upsert, tombstone]) == {}
    assert oracle([upsert, tombstone, Event("a", "p", 4)]) == {}
    assert oracle([upsert, tombstone, Event("a", "q", 5)]) == {"a": Event("a", "q", 5)}
    assert oracle([tombstone, upsert]) == {"a": upsert}


@given(st.integers(0, 300), st.floats(0, 1), st.integers(1, 40), st.integers(0, 9))
def test_disorder_loses_nothing(count: int, share: float, distance: int, seed: int) -> None:
    items = range(count)
    late = list(delayed(items, share, distance, seed=seed))
    assert sorted(late) == list(items)
    twice = Counter(duplicated(items, share, distance, seed=seed))
    assert set(twice) == set(items) and set(twice.values()) <= {1, 2}
    assert sorted(shuffled(items, distance, seed=seed)) == list(items)
    assert list(delayed(items, 0, distance, seed=seed)) == list(items)


def test_disorder_does_disorder() -> None:
    items = range(1_000)
    late = list(delayed(items, 0.1, 50, seed=1))
    assert 50 < sum(b < a for a, b in pairwise(late)) < 200
    assert 1_050 < len(list(duplicated(items, 0.1, 50, seed=1))) < 1_150
    assert list(shuffled(items, 20, seed=1)) != list(items)


def test_files_rise_in_name_and_time(tmp_path: Path) -> None:
    paths = write_files(generate(95, seed=3), tmp_path, 10)
    paths += write_files(generate(10, seed=4), tmp_path, 10, first=len(paths))
    assert len(paths) == 11 and sorted(tmp_path.iterdir()) == paths
    assert [p.stat().st_mtime for p in paths] == sorted({p.stat().st_mtime for p in paths})
    with pytest.raises(ValueError, match="tombstone"):
        write_files([Event("a", None, None, deleted=True)], tmp_path / "t", 10)


def test_compare_names_every_kind_of_difference() -> None:
    live = [Event(key, "p", 1, name=key) for key in "abcd"]
    assert not compare(rows(live), rows(reversed(live)), ["id"])
    wrong = [live[0], live[0], Event("b", "q", 1, name=None), live[3], Event("z", "p", 1)]
    found = compare(rows(live), rows(wrong), ["id"])
    assert (found.lost, found.unexpected, found.doubled) == (1, 1, 1)
    assert found.changed == {"part": 1, "name": 1}
    assert "lost: {'id': 'c'}" in str(found) and "name of {'id': 'b'}: expected 'b', found None" in str(found)
    assert compare(rows(live), rows([]), ["id"]).lost == 4
