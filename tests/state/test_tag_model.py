"""The tag step against an oracle, whatever happens to the local store between and within batches."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagstream.state.batch_manifest import DeltaRef
from tagstream.state.layout import OrderingKind, StateLayout
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, FakeTable, Oracle, make_batch, make_profile

KEYS = st.sampled_from(["a", "ab", "a\x00", "b", "key-0001", "key-0002", "ä", "long" * 40])
PARTITIONS = st.sampled_from(["p1", "p2", "p=3/q=ö"])
UPSERT = st.builds(Event, KEYS, PARTITIONS, st.integers(0, 6))
DELETE = st.builds(Event, KEYS, st.none() | PARTITIONS, st.none() | st.integers(0, 6), st.just(True))
EVENTS = st.lists(UPSERT | UPSERT | DELETE, max_size=12)
FATE = st.sampled_from(["go on", "local store lost", "retried", "other attempt first", "copy of older store"])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(EVENTS, FATE), max_size=8), st.sampled_from(["int64", "bytes", "none"]))
def test_table_equals_oracle(steps: list[tuple[list[Event], str]], kind: OrderingKind) -> None:
    with TemporaryDirectory() as folder:
        local = Path(folder, "local", str(LABEL))
        layout = StateLayout(PosixStorage(f"{folder}/durable", sync=False), f"{folder}/local", kind, snapshot_every=3)
        oracle, table, pointer = Oracle(kind != "none"), FakeTable(), None
        for batch_id, (events, fate) in enumerate(steps):
            batch, profile = make_batch(events, layout), make_profile(batch_id)
            if fate == "local store lost":
                shutil.rmtree(local, ignore_errors=True)
            elif fate == "other attempt first" and events:
                tag_key_group(LABEL, pointer, make_batch(events[1:], layout), profile, layout)
            elif fate == "copy of older store" and local.exists():
                shutil.copytree(local, f"{folder}/old")
            result = tag_key_group(LABEL, pointer, batch, profile, layout)
            if fate == "retried":
                again = tag_key_group(LABEL, pointer, batch, profile, layout)
                assert _chain(again.delta) == _chain(result.delta)
                assert list(again.file_id) == list(result.file_id)
            if Path(folder, "old").exists():
                shutil.rmtree(local)
                shutil.move(f"{folder}/old", local)
            pointer = result.pointer
            table.apply(result)
            oracle.apply(events)
            live = {k[1:].decode(): place[0] for k, place in table.rows.items()}
            assert live == oracle.live()
            if events:
                assert result.stats["live_keys"] == len(live)
                assert result.stats["tombstones"] == len(oracle.known) - len(live)
                assert result.stats["records"] == len(events)


def _chain(text: str | None) -> str | None:
    return None if text is None else DeltaRef.from_json(text).pointer.chain


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(UPSERT, max_size=10), max_size=5))
def test_partitioned_index_keeps_keys_of_partitions_apart(steps: list[list[Event]]) -> None:
    with TemporaryDirectory() as folder:
        layout = StateLayout(
            PosixStorage(f"{folder}/d", sync=False), f"{folder}/l", global_index=False, snapshot_every=2
        )
        oracle, table, pointer = Oracle(global_index=False), FakeTable(), None
        for batch_id, events in enumerate(steps):
            result = tag_key_group(LABEL, pointer, make_batch(events, layout), make_profile(batch_id), layout)
            assert result.stats["moves"] == 0
            pointer = result.pointer
            table.apply(result)
            oracle.apply(events)
        assert {k[1:].decode() for k in table.rows} == set(oracle.live())
