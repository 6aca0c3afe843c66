"""An index rescaled by several processes is the one that a single process makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tagstream.cli import index_processes as shared
from tagstream.cli.index_load import GroupLoader, RecordSpiller, complete
from tagstream.cli.index_processes import load_groups, processes_for
from tagstream.cli.output import AdminError
from tests.cli.test_load import LABELS, PLACES, content, made, make_layout


def test_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    assert processes_for(10_000_000, 256, None) == 8
    assert processes_for(10_000_000, 4, None) == 4, "one for each key group"
    assert processes_for(shared.LEAST_KEYS - 1, 256, None) == 1, "starting them takes longer"
    assert processes_for(10, 256, 3) == 3
    assert processes_for(10, 0, 3) == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_files_that_number_their_places_differently(tmp_path: Path, processes: int) -> None:
    layout = make_layout(tmp_path, "tuple", True)
    spilled, wanted = [], []
    for task, order in enumerate(([0, 1, 2], [2, 0, 1])):
        entries = made(layout, 150, 150 * task)
        names, numbers = [PLACES[i] for i in order], np.argsort(order)
        place = np.where(entries.place >= 0, numbers[entries.place], -1).astype(np.int64)
        spiller = RecordSpiller(layout, len(LABELS), str(tmp_path / "scratch"), task)
        spiller.add(type(entries)(entries.skeys, entries.records, names, place))
        spilled.append(spiller.close())
        wanted += [
            (key, names[at] if at >= 0 else None) for key, at in zip(entries.skeys.to_pylist(), place, strict=True)
        ]
    loader = GroupLoader.of(layout, len(LABELS), str(tmp_path / "scratch"), iter(spilled))
    said: list[str] = []
    starts = load_groups(loader, LABELS, processes, said.append)
    assert [start.label for start in starts] == list(LABELS)
    assert said == [f"wrote {n} of {len(LABELS)} key groups" for n in range(1, len(LABELS) + 1)]
    complete(layout, starts, "/t", (), ".*")
    found = [row[:2] for group in content(layout).values() for row in group]
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_what_a_process_fails_with_is_the_commands_error(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, "int64", True)
    spillers = [RecordSpiller(layout, len(LABELS), str(tmp_path / "scratch"), task) for task in (0, 1)]
    for spiller in spillers:
        spiller.add(made(layout, 20))
    loader = GroupLoader.of(layout, len(LABELS), str(tmp_path / "scratch"), [spiller.close() for spiller in spillers])
    with pytest.raises(AdminError, match="is there twice; an index has each key once"):
        load_groups(loader, LABELS, 2, lambda _: None)
