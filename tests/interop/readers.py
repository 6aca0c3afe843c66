"""Which engine reads what: every engine reads every kind of table, and its rows are compared with those that are there.

``python -m tests.interop.readers`` writes what it sees to ``tests/fixtures/readers.json``, of which
``tests/support/readers_page.py`` makes the page; ``test_readers.py`` fails where an engine reads something else.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq

from bench.peers import home as peers
from bench.writers.command import java
from tagstream.catalog.options import SyncOptions
from tagstream.catalog.sync import sync_table
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tests.interop.hudi_program import METASTORE
from tests.interop.hudi_spark import HudiSpark
from tests.interop.readers_program import ANSWER
from tests.support.answering import ENDED, AnsweringProgram
from tests.support.aws import aws_server, environment
from tests.support.hive_metastore import MetastoreServer
from tests.support.hudi_rs import read_table
from tests.support.readers_page import FOUND, SHAPES, Shape
from tests.support.table_version import using
from tests.support.trino import VERSION as TRINO
from tests.support.trino import TrinoServer
from tests.table.metadata.case import Case
from tests.table.services.compaction_compacting import ALL, clock
from tests.table.writer import Writer, row

PROGRAM = Path(__file__).with_name("readers_program.py")
COLUMNS = ["id", "part", "ver", "name", "amount"]
SQL_TYPES = ["STRING", "STRING", "BIGINT", "STRING", "DOUBLE"]
DATABASE, BUCKET = "readers", "readers"
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Made:
    """A table, its rows, and those of them that its newest base files hold."""

    shape: Shape
    path: Path
    live: Rows
    base: Rows


@dataclass(frozen=True)
class Engines:
    """What reads: the engines that are running."""

    hudi: HudiSpark
    trino: TrinoServer
    store: str
    program: Program

    def readers(self) -> dict[str, Callable[[Made, str], Rows]]:
        """Each by the name that the page gives it; the text is the ending of the entry's name."""
        return {
            "hudi-rs 0.5.0": lambda made, _: values(read_table(made.path, meta_columns=False).to_pylist()),
            "Spark 3.5 with Hudi 1.2.0": self._spark,
            f"Trino {TRINO}, connector hudi": lambda made, ending: self._trino("hudi", made, ending),
            f"Trino {TRINO}, connector hive": lambda made, ending: self._trino("hive", made, ending),
            "ClickHouse 26.9": self._clickhouse,
            "Daft 0.7.26": lambda made, _: self.program.read("daft", path=str(made.path), columns=COLUMNS),
            "DuckDB 2.0.1": lambda made, _: self.program.read("duckdb", path=str(made.path), columns=COLUMNS),
        }

    def _spark(self, made: Made, ending: str) -> Rows:
        statement = f"select {','.join(COLUMNS)} from {DATABASE}.{made.shape.name}{ending}"
        return values(self.hudi.sql(made.path, statement))

    def _trino(self, catalog: str, made: Made, ending: str) -> Rows:
        name = f"{catalog}.{DATABASE}.{made.shape.name}{ending}"
        return self.program.read("trino", port=self.trino.port, name=name, columns=COLUMNS)

    def _clickhouse(self, made: Made, ending: str) -> Rows:
        url = f"{self.store}/{BUCKET}/{made.shape.name}/"
        return self.program.read("clickhouse", url=url, key="key", secret="secret", columns=COLUMNS)


class Program(AnsweringProgram):
    """The engines of the readers' own Python."""

    def __init__(self, log: Path) -> None:
        """`log`: the file for its errors."""
        super().__init__([peers.readers_python(), PROGRAM], log)

    def read(self, reader: str, **order: Any) -> Rows:
        """The rows as the engine's client gives them; RuntimeError with what the engine says."""
        answer = self.ask(json.dumps({"reader": reader, **order}))
        if answer == ENDED:
            raise RuntimeError(f"{reader} ended the process")
        return answered(json.loads(answer))


def answered(answer: dict[str, Any]) -> Rows:
    """The rows of an answer; RuntimeError with its error."""
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return [tuple(each) for each in answer["rows"]]


def values(rows: Iterable[dict[str, Any]]) -> Rows:
    """In the order of the columns."""
    return [typed([each[name] for name in COLUMNS]) for each in rows]


def typed(found: Sequence[Any]) -> tuple[Any, ...]:
    """ClickHouse writes 64-bit numbers as text, Spark's answers are text."""
    key, part, ver, name, amount = found
    return key, part, int(ver), name, float(amount)


def make(folder: Path, shape: Shape) -> Made:
    """Inserts, updates, deletes, moves between partitions, a key that comes back; new keys go where a job puts them."""
    table_type = MERGE_ON_READ if shape.merge_on_read else COPY_ON_WRITE
    place = folder / shape.name
    place.mkdir()
    with using(shape.version):
        if shape.metadata:
            writer = Case.create(place, table_type, shape.version).writer
        else:
            writer = Writer.without_metadata(place, table_type)
        writer.with_options(inserts_to_base_files=shape.metadata and shape.version >= 8)
        writer.write([row(key, f"p{key % 3}", 1) for key in range(60)])
        writer.write([row(key, f"p{key % 3}", 2, "updated") for key in range(0, 60, 4)], deletes=["k6", "k7", "k9"])
        new = [row(100 + key, "p0", 3) for key in range(5)]
        writer.write([*(row(key, "p2", 3, "moved") for key in range(10, 14)), *new, row(6, "p1", 3, "back")])
        if shape.compacted:
            instant = schedule_compaction(writer.table, ALL, clock(writer), force=True)
            assert instant is not None
            compact(writer.table, instant, clock(writer))
    path = place / "t"
    live = sorted(values(writer.live.values()))
    return Made(shape, path, live, sorted(base_rows(path)))


def base_rows(path: Path) -> Rows:
    """What the newest base file of each file group holds, by the files' names alone."""
    newest: dict[tuple[str, str], Path] = {}
    for file in sorted(path.glob("*/*.parquet"), key=lambda file: file.stem.rpartition("_")[2]):
        newest[file.parent.name, file.name.partition("_")[0]] = file
    return [each for file in newest.values() for each in values(pq.read_table(file).to_pylist())]


def outcome(made: Made, read: Callable[[], Rows]) -> dict[str, Any]:
    """What a reader returned, compared with the rows that are there. ``reads``: all, base, wrong or nothing."""
    try:
        found = read()
    except Exception as e:  # what an engine raises is its own
        return {"reads": "nothing", "says": plain(str(e), made)}
    rows, live = Counter(map(typed, found)), Counter(made.live)
    reads = "all" if rows == live else "base" if rows == Counter(made.base) else "wrong"
    counts = {"rows": len(found), "there": len(made.live)}
    if reads != "all":
        counts |= {"missing": (live - rows).total(), "extra": (rows - live).total()}
    return {"reads": reads, **counts}


def plain(text: str, made: Made) -> str:
    """The first line of an error without places."""
    line = next((line for line in text.splitlines() if line.strip()), "(nothing)")
    line = line.rpartition(": Hudi ")[2].replace(str(made.path), "<table>")
    line = re.sub(r"\S*127\.0\.0\.1:\d+\S*|/\S*" + re.escape(made.shape.name) + r"\S*", "<table>", line)
    return line[:160].strip()


@contextmanager
def engines(folder: Path, tables: Sequence[Made]) -> Iterator[Engines]:
    """All of them, over a metastore and a store that have the tables."""
    with ExitStack() as stack:
        metastore = stack.enter_context(MetastoreServer(folder / "metastore"))
        client = metastore.client()
        for made in tables:
            sync_table(
                HoodieTable.open(str(made.path)), client, SyncOptions(database=DATABASE, table=made.shape.name), "me"
            )
        client.close()
        settings = stack.enter_context(aws_server())
        store = settings["AWS_ENDPOINT_URL"]
        with environment(settings):
            upload(store, tables)
        hudi = stack.enter_context(HudiSpark("1.2.0", folder, settings={METASTORE: metastore.uri}))
        trino = stack.enter_context(TrinoServer(folder / "trino", metastore.uri))
        program = stack.enter_context(Program(folder / "readers.log"))
        yield Engines(hudi, trino, store, program)


def upload(endpoint: str, tables: Sequence[Made]) -> None:
    """The tables' files into a bucket."""
    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(Bucket=BUCKET)
    for made in tables:
        for file in made.path.rglob("*"):
            if file.is_file():
                s3.upload_file(str(file), BUCKET, f"{made.shape.name}/{file.relative_to(made.path).as_posix()}")


def flink(folder: Path, tables: Sequence[Made]) -> list[Callable[[], Rows]]:
    """What Flink with Hudi 0.14.0 says of each table; one run of it for all."""
    order = {
        "columns": COLUMNS, "types": SQL_TYPES, "key": "id", "partition": "part",
        "tables": [
            {"path": made.path.as_uri(), "type": MERGE_ON_READ if made.shape.merge_on_read else COPY_ON_WRITE}
            for made in tables
        ],
    }  # fmt: skip
    path = folder / "flink.json"
    path.write_text(json.dumps(order))
    command = java(peers.HUDI_ON_FLINK, path, "HudiRead")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line.removeprefix(ANSWER)) for line in done.stdout.splitlines() if line.startswith(ANSWER)]
    assert len(found) == len(tables), done.stderr[-4000:]
    return [lambda answer=answer: answered(answer) for answer in found]  # type: ignore[misc]


def measure(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Reader -> table, or its entry -> what it reads."""
    peers.set_up([peers.HUDI_ON_FLINK])
    places = folder / "tables"
    places.mkdir()
    tables = [make(places, shape) for shape in SHAPES]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with engines(folder, tables) as running:
        for name, read in running.readers().items():
            of_reader = found.setdefault(name, {})
            for made in tables:
                for ending in endings(name, made.shape):
                    of_reader[made.shape.name + ending] = outcome(made, lambda r=read, m=made, e=ending: r(m, e))  # type: ignore[misc]
    found["Flink 1.17 with Hudi 0.14.0"] = {
        made.shape.name: outcome(made, read) for made, read in zip(tables, flink(folder, tables), strict=True)
    }
    return found


def endings(reader: str, shape: Shape) -> Sequence[str]:
    """Of the entries that a reader by name finds of a table."""
    by_name = reader.startswith(("Spark", "Trino"))
    return ("", "_ro", "_rt") if by_name and shape.merge_on_read else ("",)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        seen = measure(Path(scratch))
    FOUND.write_text(json.dumps(seen, indent=1) + "\n")
    print(f"wrote {FOUND}")
