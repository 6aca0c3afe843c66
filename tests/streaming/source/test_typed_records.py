"""The user's session while queries start: one after the other has the state's settings, then the user's are back."""

from __future__ import annotations

import threading
from typing import Any

from tagstream.streaming.source.dataframe import settings_of

PARTITIONS, ADAPTIVE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"


class Conf(dict[str, Any]):
    """What a session's conf has of methods."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)


class Session:
    def __init__(self, partitions: str, adaptive: str) -> None:
        self.conf = Conf({PARTITIONS: partitions, ADAPTIVE: adaptive})


def test_a_start_waits_for_the_one_that_has_begun() -> None:
    user: Any = Session("200", "true")
    first: Any = Session("2", "false")
    second: Any = Session("4", "false")
    inside, first_ended = threading.Event(), threading.Event()
    seen: list[str] = []

    def start() -> None:
        with settings_of(second, user):
            inside.set()
            assert first_ended.wait(60)
            seen.append(user.conf[PARTITIONS])

    thread = threading.Thread(target=start)
    with settings_of(first, user):
        thread.start()
        inside.wait(0.3)  # without the lock it gets in, and the rest goes wrong
        seen.append(user.conf[PARTITIONS])
    first_ended.set()
    thread.join(60)
    assert seen == ["2", "4"]
    assert user.conf == {PARTITIONS: "200", ADAPTIVE: "true"}
