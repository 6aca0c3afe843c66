"""What stands for threads: work that is done in the one thread of a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Deferred:
    """Stands for work during batches: it runs when it is asked for the second time, or must have ended."""

    def __init__(self, _spark: object, _name: str, work: Callable[[], Any], *, is_async: bool) -> None:
        self._work, self._asked, self._ran = work, 0, False
        self._result: Any = None
        self._error: Exception | None = None
        if not is_async:
            self._run()

    @property
    def ended(self) -> bool:
        self._asked += 1
        if self._asked > 1:
            self._run()
        return self._ran

    def result(self) -> Any:
        self._run()
        if self._error is not None:
            raise self._error
        return self._result

    def cancel(self) -> None:
        self._ran = True

    def _run(self) -> None:
        if self._ran:
            return
        self._ran = True
        try:
            self._result = self._work()
        except Exception as error:
            self._error = error


class OneThread:
    """Stands for a pool of threads: what it is given runs at once, in its order."""

    def __init__(self, _threads: int) -> None: ...

    def __enter__(self) -> OneThread:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, task: Callable[[Any], Any], work: Iterable[Any]) -> list[Any]:
        return [task(item) for item in work]
