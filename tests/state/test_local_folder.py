"""Local stores are kept where only this user can read and write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagstream.state.durable_files import Pointer
from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.rocks_store import META_KEY, RocksStore, write_sorted_file
from tagstream.state.scratch import make_private
from tagstream.state.store_entries import StoreMeta
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, make_batch, make_profile
from tests.state.test_index_load import Row, load

OTHER_USER = 12345


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    root = tmp_path / "spark"
    root.mkdir(mode=0o755)
    local = root / "tagstream-0" / "table" / "checkpoint"
    return StateLayout(PosixStorage(str(tmp_path / "durable"), sync=False), str(local), local_root=str(root))


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def ours(layout: StateLayout) -> list[Path]:
    """The folders that are made between the root and the stores."""
    return [Path(layout.local_dir).parents[1], Path(layout.local_dir).parent, Path(layout.local_dir)]


@pytest.mark.parametrize("root", ["/", "/missing/too"])
def test_what_is_made_is_for_this_user_alone(tmp_path: Path, root: str) -> None:
    where = Path(f"{tmp_path}/spark{root}")
    Path(tmp_path, "spark").mkdir()
    layout = StateLayout(
        PosixStorage(str(tmp_path / "durable"), sync=False), str(where / "a" / "b"), local_root=str(where)
    )
    tag_key_group(LABEL, None, make_batch([Event("k", "p", 1)], layout), make_profile(0), layout)
    made = [p for p in (tmp_path / "spark" / "missing", where, where / "a", where / "a" / "b") if p.is_dir()]
    assert {mode(p) for p in made if p != tmp_path / "spark"} == {0o700}
    assert mode(tmp_path / "spark") == 0o755
    assert Path(layout.group_dir(LABEL), "store-0").is_dir()


def test_loading_an_index_makes_it_the_same_way(layout: StateLayout) -> None:
    load(layout, [Row("a", 0, 1)])
    assert [mode(path) for path in ours(layout)] == [0o700] * 3


def test_folders_of_an_earlier_version_are_closed(layout: StateLayout) -> None:
    os.makedirs(layout.local_dir)
    assert [mode(path) for path in ours(layout)] == [0o755] * 3
    make_private(layout)
    assert [mode(path) for path in ours(layout)] == [0o700] * 3


def plant(layout: StateLayout, pointer: Pointer, scratch: Path) -> None:
    """A store without a key that stands at the pointer's chain, as anybody can make it who reads the checkpoint."""
    path = Path(layout.group_dir(LABEL), "store-0")
    path.parent.mkdir(parents=True)
    with RocksStore(str(path)) as store:
        write_sorted_file(str(scratch / "x.sst"), [META_KEY], [StoreMeta(pointer.chain, 0, 0, 0).to_bytes()])
        store.ingest(str(scratch / "x.sst"))


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("fault", ["another user's", "written by others", "written by the group", "a link", "a file"])
def test_a_folder_that_others_could_have_filled_is_refused(
    layout: StateLayout, tmp_path: Path, fault: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tag_key_group(LABEL, None, make_batch([Event("k", "p", 1)], layout), make_profile(0), layout)
    assert first.pointer is not None
    os.rename(Path(layout.local_root, "tagstream-0"), tmp_path / "away")
    plant(layout, Pointer.from_bytes(first.pointer, LABEL), tmp_path)
    path = ours(layout)[level]
    if fault == "another user's":
        if os.geteuid() == 0:
            os.chown(path, OTHER_USER, -1)
        else:  # who may not give folders away is another user himself
            path = ours(layout)[0]
            monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)
    elif fault == "a link":
        path.rename(tmp_path / "target")
        path.symlink_to(tmp_path / "target")
    elif fault == "a file":
        path.rename(tmp_path / "target")
        path.touch()
    else:
        path.chmod(0o777 if fault == "written by others" else 0o770)
    batch, profile = make_batch([Event("k", "p", 2)], layout), make_profile(1)
    with pytest.raises(StateError, match=r"another user could .* index\.local\.dir") as refused:
        tag_key_group(LABEL, first.pointer, batch, profile, layout)
    assert str(path) in str(refused.value)
    with pytest.raises(StateError, match="another user could"):
        open_at(layout, LABEL, Pointer())
    with pytest.raises(StateError, match="another user could"):
        load(layout, [Row("a", 0, 1)])


def test_the_root_is_the_users_own_business(layout: StateLayout, tmp_path: Path) -> None:
    """``/tmp`` can be written by all, a disk may be a link."""
    Path(layout.local_root).rename(tmp_path / "disk")
    (tmp_path / "disk").chmod(0o1777)
    Path(layout.local_root).symlink_to(tmp_path / "disk")
    make_private(layout)
    assert [mode(path) for path in ours(layout)] == [0o700] * 3


def test_stores_of_checkpoints_that_nobody_opens_any_more_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "tagstream-0"
    now = tmp_path.stat().st_mtime

    def store(table: str, checkpoint: str, days: float) -> Path:
        folder = root / table / checkpoint
        (folder / "0" / "store-0").mkdir(parents=True)
        for path in (folder / "0" / "store-0", folder / "0", folder):
            os.utime(path, (now - days * 86_400,) * 2)
        return folder

    old, used = store("a" * 16, "0" * 16, 40), store("b" * 16, "1" * 16, 20)
    os.utime(used, (0, 0))
    theirs = store("somebody", "else's", 400)
    for folder in (root, *(t.parent for t in (old, used, theirs))):
        folder.chmod(0o700)
    durable = PosixStorage(str(tmp_path / "durable"), sync=False)
    layout = StateLayout(durable, str(root / ("b" * 16) / ("2" * 16)), local_root=str(tmp_path))
    make_private(layout)
    assert not old.parent.exists()
    assert used.is_dir() and theirs.is_dir() and Path(layout.local_dir).is_dir()
    again = store("a" * 16, "0" * 16, 40)
    make_private(layout)
    assert again.is_dir(), "looked at only when a folder is made"
