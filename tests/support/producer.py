"""Sends change events to a Kafka topic: `python -m tests.support.producer --help`.

Replays files of JSON events, or generates them, at a given rate; late, doubled and shuffled on request. Seeded: the
same arguments send the same messages. `--sent` keeps what was sent, in order, for an oracle.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tests.support import cdc
from tests.support.disorder import delayed, duplicated, shuffled
from tests.support.events import Event, Mix, generate
from tests.support.kafka_broker import KafkaBroker

Message = tuple[bytes, bytes | None]  # key, value; no value is a tombstone
DELETED_FIELD = "_hoodie_is_deleted"
STEP = 200  # messages between two looks at the clock


class SendError(RuntimeError):
    """The broker did not take a message."""


def message_key(row: Mapping[str, Any], fields: Sequence[str]) -> bytes:
    """Kafka key of an event: the text of the one key field, else a JSON object of the key fields."""
    if len(fields) == 1:
        return str(row[fields[0]]).encode()
    return json.dumps({field: row[field] for field in fields}, separators=(",", ":")).encode()


def file_messages(paths: Iterable[Path], key_fields: Sequence[str]) -> Iterator[Message]:
    """Messages of files with one JSON event a line, in the order given; the value is the line as it stands."""
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                if value := line.strip():
                    yield message_key(json.loads(value), key_fields), value


def with_tombstones(messages: Iterable[Message], share: float, *, seed: int) -> Iterator[Message]:
    """`share` of the deletes are sent as a key without a value."""
    rng = random.Random(seed)
    for key, value in messages:
        is_delete = value is not None and json.loads(value).get(DELETED_FIELD) is True
        yield key, None if is_delete and rng.random() < share else value


def send(
    messages: Iterable[Message],
    topic: str,
    client: Mapping[str, Any],
    *,
    rate: float | None = None,
    on_sent: Callable[[int], None] | None = None,
) -> int:
    """Send all, wait until the broker has them, return how many. Raises SendError on the first one refused.

    `client` are kafka-python's arguments, `rate` messages a second (as fast as it goes without). The order of one key
    is kept: idempotent producer, same partition.
    """
    failures: list[Exception] = []
    count = 0
    producer = KafkaProducer(**client, linger_ms=50, batch_size=1 << 18)
    try:
        start = time.monotonic()
        for key, value in messages:
            producer.send(topic, key=key, value=value).add_errback(failures.append)
            count += 1
            if count % STEP == 0 or rate is not None:
                if failures:
                    break
                if on_sent is not None:
                    on_sent(count)
                if rate is not None and (ahead := start + count / rate - time.monotonic()) > 0:
                    time.sleep(ahead)
        producer.flush(timeout=120)
    except KafkaError as error:
        failures.append(error)
    finally:
        producer.close(timeout=10)
    if failures:
        raise SendError(f"topic {topic} at {client['bootstrap_servers']}, near message {count}: {failures[0]!r}")
    if on_sent is not None:
        on_sent(count)
    return count


def send_captured(broker: KafkaBroker, topic: str, messages: Iterable[cdc.Message]) -> None:
    """Captured messages, each into its partition and with its headers; returns when the broker has them."""
    producer = KafkaProducer(**broker.python_client())
    for m in messages:
        headers = [(k, v.encode()) for k, v in m.headers.items()]
        producer.send(topic, key=m.key, value=m.value, partition=m.partition, headers=headers)
    producer.flush()
    producer.close()


def make_topic(topic: str, partitions: int, client: Mapping[str, Any]) -> None:
    """Make the topic; one that exists stays as it is."""
    admin = KafkaAdminClient(**client)
    try:
        with suppress(TopicAlreadyExistsError):
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
    finally:
        admin.close()


def client_argument(pair: str) -> tuple[str, Any]:
    """NAME=VALUE as an argument of kafka-python: a number, true or false is one, all else is text."""
    name, _, text = pair.partition("=")
    try:
        value = json.loads(text)
    except ValueError:
        return name, text
    return name, value if isinstance(value, bool | int | float) else text


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.producer", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=4, help="of the topic, if it has to be made (default 4)")
    parser.add_argument(
        "--client", action="append", default=[], metavar="NAME=VALUE", help="any argument of kafka-python"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--file", type=Path, nargs="+", help="files of one JSON event a line")
    what.add_argument("--generate", type=int, metavar="N", help="N generated events (tests/support/events.py)")
    parser.add_argument("--key-fields", default="id", help="fields of the message key, by commas (default id)")
    parser.add_argument("--keys", type=int, default=1000, help="number of keys to generate (default 1000)")
    parser.add_argument("--limit", type=int, help="send no more than this many")
    parser.add_argument("--rate", type=float, help="messages a second (default: as fast as it goes)")
    parser.add_argument("--late", type=float, default=0.0, metavar="SHARE", help="share of messages sent later")
    parser.add_argument("--duplicates", type=float, default=0.0, metavar="SHARE", help="share of messages sent twice")
    parser.add_argument("--distance", type=int, default=1000, help="how much later, in messages (default 1000)")
    parser.add_argument("--shuffle", type=int, default=0, metavar="WINDOW", help="shuffle within so many messages")
    parser.add_argument(
        "--tombstones", type=float, default=0.0, metavar="SHARE", help="share of deletes sent without value"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sent", type=Path, help="write what was sent here, one JSON object a line, in order")
    return parser.parse_args(arguments)


def planned(options: argparse.Namespace) -> Iterator[Message]:
    """The messages a command line asks for."""
    messages: Iterator[Message]
    if options.file:
        messages = file_messages(options.file, options.key_fields.split(","))
    else:
        messages = (event.message() for event in generate(options.generate, Mix(keys=options.keys), seed=options.seed))
    if options.tombstones:
        messages = with_tombstones(messages, options.tombstones, seed=options.seed)
    if options.late:
        messages = delayed(messages, options.late, options.distance, seed=options.seed + 1)
    if options.duplicates:
        messages = duplicated(messages, options.duplicates, options.distance, seed=options.seed + 2)
    if options.shuffle:
        messages = shuffled(messages, options.shuffle, seed=options.seed + 3)
    if options.limit is not None:
        messages = (message for _, message in zip(range(options.limit), messages, strict=False))
    return messages


def recorded(messages: Iterable[Message], path: Path) -> Iterator[Message]:
    """Pass messages on and write each to `path`."""
    with path.open("w", encoding="utf-8") as out:
        for key, value in messages:
            out.write(json.dumps({"key": key.decode(), "value": None if value is None else value.decode()}) + "\n")
            yield key, value


def sent_events(path: Path) -> Iterator[Event]:
    """Generated events back from a `--sent` file, in the order they were sent."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            message = json.loads(line)
            yield Event.of_message(message["key"], message["value"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 when the broker can't be reached or refuses a message."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    client: dict[str, Any] = {"bootstrap_servers": options.bootstrap_servers}
    client |= dict(client_argument(pair) for pair in options.client)
    messages = planned(options)
    if options.sent is not None:
        messages = recorded(messages, options.sent)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs every failed attempt; the last one is raised
    console = Console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[speed]}"), TimeElapsedColumn()]
    began = time.monotonic()
    try:
        make_topic(options.topic, options.partitions, client)
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task(f"to {options.topic}", total=options.limit or options.generate, speed="")

            def show(count: int) -> None:
                speed = count / max(time.monotonic() - began, 1e-3)
                progress.update(task, completed=count, speed=f"{speed:,.0f}/s")

            count = send(messages, options.topic, client, rate=options.rate, on_sent=show)
    except (KafkaError, SendError) as error:
        what = f"nothing more sent: {error}. Is the broker at {options.bootstrap_servers} up?"
        console.print(what, style="red", markup=False, soft_wrap=True)
        return 1
    seconds = time.monotonic() - began
    print(f"{count:,} messages to {options.topic} in {seconds:.1f} s ({count / seconds:,.0f}/s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
