"""Several sources read at once, for one who takes them one after another: on a store far away each read is a wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Event
from typing import Generic, TypeVar

T = TypeVar("T")
_WAITING = 2  # items of a source that are read and not yet taken


class _End:
    """The last item of a source; ``why`` it ended before its time."""

    def __init__(self, why: BaseException | None) -> None:
        self.why = why


class _Reading(Generic[T]):
    """A source that a thread reads."""

    def __init__(self, source: Callable[[], Iterator[T]], stop: Event) -> None:
        self._source = source
        self._stop = stop
        self._items: Queue[T | _End] = Queue(_WAITING)
        self._ended = False

    def read(self) -> None:
        """What the thread does: it waits where nobody takes the items, and leaves an end whatever happens."""
        why: BaseException | None = None
        try:
            for item in self._source():
                self._items.put(item)
                if self._stop.is_set():
                    break
        except BaseException as e:  # raised again in the thread that takes the items
            why = e
        self._items.put(_End(why))

    def items(self) -> Iterator[T]:
        """The items; raises what the source raised, where it raised it."""
        while not self._ended:
            item = self._items.get()
            if isinstance(item, _End):
                self._ended = True
                if item.why is not None:
                    raise item.why
            else:
                yield item

    def drop(self) -> None:
        """Let the thread come to its end."""
        while not self._ended:
            self._ended = isinstance(self._items.get(), _End)


def ahead(sources: Iterable[Callable[[], Iterator[T]]], at_once: int) -> Generator[Iterator[T], None, None]:
    """The items of each source, one source after another, ``at_once`` of them being read; 1: without threads.

    Take all items of one before going on to the next: what is left is dropped. In memory are a few items of each source that
    is being read. Close this when it is not read to its end.
    """
    if at_once < 2:
        for source in sources:
            yield source()
        return
    stop, reading = Event(), deque[_Reading[T]]()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for source in sources:
                reading.append(_Reading(source, stop))
                pool.submit(reading[-1].read)
                if len(reading) == at_once:
                    yield reading[0].items()
                    reading.popleft().drop()
            while reading:
                yield reading[0].items()
                reading.popleft().drop()
        finally:
            stop.set()
            for each in reading:
                each.drop()
