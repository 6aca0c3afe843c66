"""The local store keeps its sorted runs few, whoever made it."""

from pathlib import Path

import pytest

from tagstream.state.rocks_store import MAX_RUNS, RocksStore, write_sorted_file


def ingested(store: RocksStore, folder: Path, number: int) -> None:
    """One more sorted run of 200 keys, which lies over the runs before."""
    path = str(folder / f"run-{number}.sst")
    keys = [b"\x01%06d" % (step * 10 + number % 10) for step in range(200)]
    write_sorted_file(path, keys, [b"value %d" % number] * len(keys))
    store.ingest(path)


@pytest.mark.parametrize("loaded", [False, True])
def test_sorted_runs_stay_few_though_the_store_was_made_without_merging(tmp_path: Path, loaded: bool) -> None:
    """A bulk load makes the store without merging; every batch opens it for merging, takes a run in and closes it."""
    path = str(tmp_path / "store")
    with RocksStore(path, merges=not loaded) as store:
        ingested(store, tmp_path, 0)
    for number in range(1, 31):
        with RocksStore(path, merges=True) as store:
            ingested(store, tmp_path, number)
    with RocksStore(path) as store:
        assert len(store.live_files()) <= MAX_RUNS + 1
        assert store.get([b"\x01%06d" % 0, b"\x01%06d" % 9, b"\x01x"]) == [b"value 30", b"value 29", None]
