"""Feeds a topic from lines ``key TAB value``: Kafka's console producer in a separate process.

It uses a tenth of the processor time of a producer in Python, and so takes less from the job that is measured.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars

_JAVA = ("java", "-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_BATCH_BYTES, _BUFFER_BYTES, _LINGER_MS = 1 << 18, 1 << 24, 20
_END_SECONDS = 120.0
TICK_S = 0.1


class FeedError(RuntimeError):
    """The producer ended, or did not accept its input."""


class TopicFeed:
    """A running producer. The end of the ``with`` block waits until the broker has all records."""

    def __init__(self, address: str, topic: str, log: Path) -> None:
        jars = fetch_jars(PROJECT / "conf" / "poms" / "kafka-tools.xml", PROJECT / CACHE_FOLDER)[0].parent
        command = [*_JAVA, _QUIET, "-cp", f"{jars}/*", "org.apache.kafka.tools.ConsoleProducer"]
        command += ["--bootstrap-server", address, "--topic", topic, "--property", "parse.key=true"]
        command += ["--batch-size", str(_BATCH_BYTES), "--max-memory-bytes", str(_BUFFER_BYTES)]
        command += ["--timeout", str(_LINGER_MS)]
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out)

    def write(self, lines: bytes | memoryview) -> None:
        """Write whole lines to the producer. Blocks while its buffer is full. FeedError when it has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(lines)
            self._process.stdin.flush()
        except OSError as e:
            raise FeedError(f"the producer ended with {self._process.wait()}: {e}; see {self._log}") from e

    def close(self) -> None:
        """Close the input. FeedError unless the producer has sent everything."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(_END_SECONDS) != 0 or b"ERROR" in self._log.read_bytes():
            raise FeedError(f"the producer ended with {self._process.returncode}; see {self._log}")

    def __enter__(self) -> TopicFeed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()


def keyed_lines(keys: pa.Array, lines: bytes) -> bytes:
    """The lines, each with its key and a tab before it."""
    values = pc.split_pattern(pa.array([lines.decode()]), "\n").values.slice(0, len(keys))
    joined = pc.binary_join_element_wise(keys, values, "\t")
    whole = pc.binary_join(pa.ListArray.from_arrays([0, len(joined)], joined), "\n")
    return bytes(whole.cast(pa.binary())[0].as_py()) + b"\n"


def at_rate(next_lines: Callable[[int], bytes], feed: TopicFeed, rate: float, seconds: float) -> int:
    """Feed ``rate`` records per second for ``seconds``, ten times per second, and return the number of records.

    ``next_lines(n)`` makes the next n lines. A producer that falls behind catches up, as real sources do.
    """
    begun = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - begun) < seconds:
        due = int(rate * passed)
        if due > sent:
            feed.write(next_lines(due - sent))
            sent = due
        time.sleep(max(0.0, TICK_S - (time.monotonic() - begun - passed)))
    return sent
