"""Archives of layout 1 for tests: made of actions of given times, and read as Hudi's reader does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from tempfile import TemporaryDirectory

from tagstream.table.history.action_files import ArchivedAction, to_avro
from tagstream.table.history.archive_log import archive_files, entries_of, read_archive, read_entries, write_archive
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage

FOLDER = "archived"
_EMPTY = to_avro(b"{}", "x")


def name_of(number: int) -> str:
    """The archive's file of this number."""
    return f".commits_.archive.{number}_1-0-1"


def time_of(number: int) -> str:
    """The time of the action with this number."""
    return f"{number:017d}"


def put(storage: Storage, numbers: Iterable[int]) -> str | None:
    """Archive actions as one more file."""
    actions = [ArchivedAction(time_of(n), "commit", time_of(n), _EMPTY) for n in numbers]
    return write_archive(storage, FOLDER, [entries_of(a, a.time) for a in actions])


def files(storage: Storage) -> list[str]:
    """The archive's files, oldest first."""
    return archive_files(storage, FOLDER)


def numbers(storage: Storage) -> list[int]:
    """The actions that our reader finds, in its order."""
    return [int(action.time) for action in read_archive(storage, FOLDER)]


def as_hudi(storage: Storage, in_range: Callable[[int], bool] | None = None) -> list[int]:
    """The completed actions that Hudi's reader finds: HoodieArchivedTimeline.loadInstants of 0.15.0, and
    ArchivedTimelineLoaderV1 of 1.2.0, which do the same. The newest file first; with a range it stops at the first file that
    adds none when there are some already."""
    return _as_hudi([_completed(storage.read(f"{FOLDER}/{name}")) for name in reversed(files(storage))], in_range)


def whole(storage: Storage, wanted: list[int], ours: bool = True) -> None:
    """Every reader has each of these actions once, whatever range it asks for. ``ours``: our reader, too, which is slow."""
    if ours:
        assert numbers(storage) == wanted
    held = [_completed(storage.read(f"{FOLDER}/{name}")) for name in reversed(files(storage))]
    assert _as_hudi(held, None) == wanted
    for at in range(0, len(wanted), 3):
        first, last = wanted[at], wanted[min(at + 7, len(wanted) - 1)]
        assert _as_hudi(held, lambda n, a=first, b=last: a <= n <= b) == [n for n in wanted if first <= n <= last]  # type: ignore[misc]
        assert _as_hudi(held, lambda n, a=first: n >= a) == wanted[at:]  # type: ignore[misc]


def _as_hudi(held: list[tuple[int, ...]], in_range: Callable[[int], bool] | None) -> list[int]:
    found: set[int] = set()
    for done in held:
        before = len(found)
        found.update(number for number in done if in_range is None or in_range(number))
        if in_range is not None and before > 0 and len(found) == before:
            break
    return sorted(found)


@lru_cache(maxsize=1000)
def _completed(data: bytes) -> tuple[int, ...]:
    with TemporaryDirectory() as folder:
        storage = PosixStorage(folder)
        storage.write_new("file", data)
        entries = list(read_entries(storage, "file"))
    return tuple(int(entry["commitTime"]) for entry in entries if entry["actionState"] == "COMPLETED")
