"""The demo's two sources: JSON files, or a real Kafka broker on loopback. Each ends in one run of the streaming job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.flights.data import KEY_FIELDS
from bench.flights.events import Written
from bench.flights.stores import Store

PROJECT = Path(__file__).resolve().parent.parent.parent
TOPIC = "flights"
PARTITIONS = 4
BATCHES = 8  # a long stream has about this many batches, a short one fewer


@dataclass(frozen=True)
class Places:
    """Folders of a demo run, all in one parent folder."""

    out: Path

    @property
    def table(self) -> Path:
        """The Hudi table."""
        return self.out / "flights"

    @property
    def checkpoint(self) -> Path:
        """The job's checkpoint."""
        return self.out / "flights-checkpoint"

    @property
    def events(self) -> Path:
        """The event files."""
        return self.out / "flights-events"

    @property
    def broker(self) -> Path:
        """The broker's folder."""
        return self.out / "flights-broker"


def file_arguments(places: Places, written: Written) -> list[str]:
    """Arguments of the job that reads the event files."""
    limit = max(8 << 20, written.bytes // BATCHES)
    return [
        *("--props", str(PROJECT / "conf" / "flights.properties"), "--source-class", "JsonDFSSource"),
        *("--source-limit", str(limit), "--hoodie-conf", f"hoodie.streamer.source.dfs.root={places.events}"),
    ]


@contextmanager
def kafka_arguments(places: Places, written: Written, console: Console) -> Iterator[list[str]]:
    """Arguments of the job that reads the topic. The broker runs, and the topic has the events, inside the block."""
    from tests.support import producer
    from tests.support.kafka_broker import KafkaBroker

    console.print("starting a Kafka broker on loopback (Maven fetches its jars the first time)")
    with KafkaBroker(places.broker) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        columns = (TextColumn("sending events"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=written.events)
            messages = producer.file_messages(written.files, KEY_FIELDS)
            sent = producer.send(
                messages, TOPIC, broker.python_client(), on_sent=lambda count: progress.update(task, completed=count)
            )
        console.print(f"{sent:,} messages in topic {TOPIC} at {broker.address()}")
        limit = max(20_000, written.events // BATCHES)
        yield [
            *("--props", str(PROJECT / "conf" / "flights-kafka.properties"), "--source-class", "JsonKafkaSource"),
            *("--source-limit", str(limit), "--hoodie-conf", f"bootstrap.servers={broker.address()}"),
        ]


def run_job(
    places: Places, table_type: str, source: Sequence[str], more: Sequence[str] = (), store: Store | None = None
) -> int:
    """Run the streaming job over the existing records and return its exit code. Its output goes to this process's output.

    It runs in the project's folder, because the properties name the schema file relative to it.
    """
    command = [
        *(
            sys.executable,
            str(PROJECT / "run_stream.py"),
            "--target-base-path",
            store.table if store else str(places.table),
        ),
        *("--target-table", "flights", "--table-type", table_type, "--op", "UPSERT"),
        *("--checkpoint-dir", store.checkpoint if store else str(places.checkpoint), *source, *more),
    ]
    return subprocess.run(command, cwd=PROJECT, check=False).returncode
