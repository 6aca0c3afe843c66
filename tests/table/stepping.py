"""A storage that tells each of its operations before it is done, so that a test can do something else first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tagstream.table.storage.storage import Storage


class Stepping:
    """``before`` is called with the operation and the names it is about. Files are published and deleted one by one."""

    def __init__(self, storage: Storage, before: Callable[..., None]) -> None:
        self._storage = storage
        self._before = before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found) or name in ("where", "stamp"):
            return found

        def step(rel: str = "", *args: Any, **more: Any) -> Any:
            self._before(name, rel)
            return found(rel, *args, **more)

        return step

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        for staged, final in pairs:
            self._before("publish", staged, final)
            self._storage.publish([(staged, final)], are_free=are_free)

    def delete_many(self, rels: Iterable[str]) -> None:
        for rel in rels:
            self._before("delete", rel)
            self._storage.delete(rel)

    def walk_files(self, rel: str) -> Iterator[str]:
        self._before("walk_files", rel)
        yield from self._storage.walk_files(rel)
