"""Real Hudi as seen from a test: read a table, write into one. The work is done by ``hudi_program.py`` on the peers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import META_COLUMNS
from tests.interop.hudi_program import ANSWER, SETTINGS

PROGRAM = Path(__file__).with_name("hudi_program.py")


class HudiError(AssertionError):
    """What Hudi said."""


class HudiSpark:
    """One Hudi release in a process of its own, for the time of the ``with`` block."""

    def __init__(
        self, version: str, folder: Path, class_path: Sequence[Path] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        """`class_path`: folders and jars that Java looks into before the bundle. `settings`: Hadoop's, for a store."""
        self.version = version
        self._folder = folder
        self._count = 0
        self._log = (folder / "hudi.log").open("w")
        # This process may have Spark's variables of its own, which would lead the other one astray.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        env[SETTINGS] = json.dumps(dict(settings or {}))
        self._process = subprocess.Popen(
            [str(peers.python()), str(PROGRAM), str(peers.bundle(version)), str(folder / "scratch"), *map(str, class_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=env, cwd=folder,
        )  # fmt: skip

    def __enter__(self) -> HudiSpark:
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()  # the end of its orders ends it
        self._log.close()

    @property
    def is_0x(self) -> bool:
        """True for the line before 1.0, whose own table version is 6."""
        return self.version.startswith("0.")

    def read(self, table: Path | str, **options: str) -> pa.Table:
        """The snapshot (or what the options ask for) with the meta columns."""
        self._count += 1
        out = self._folder / f"read-{self._count}"
        self._order(do="read", table=str(table), rows=str(out), options=options)
        return pq.read_table(out)

    def write(
        self,
        table: HoodieTable,
        rows: pa.Table,
        options: Mapping[str, str],
        operation: str = "upsert",
        hold: Path | None = None,
        to: Path | None = None,
    ) -> None:
        """Rows of user columns into a table of ours, as a user of Hudi would, with the table's own settings.

        ``hold``: the write has begun and waits until this file is there. ``to``: into a table of these settings that is
        there instead, and is made by Hudi if it is not.
        """
        self._count += 1
        path = self._folder / f"write-{self._count}.parquet"
        pq.write_table(rows, path)
        settings = self._settings(table) | {"hoodie.datasource.write.operation": operation}
        held = {"hold": str(hold)} if hold is not None else {}
        where = table.base_path if to is None else str(to)
        self._order(do="write", table=where, rows=str(path), options={**settings, **options}, **held)

    def save(self, table: Path, rows: pa.Table, options: Mapping[str, str]) -> None:
        """Rows into a table by these options alone; Hudi makes the table if it is not there."""
        self._count += 1
        path = self._folder / f"write-{self._count}.parquet"
        pq.write_table(rows, path)
        self._order(do="write", table=str(table), rows=str(path), options=dict(options))

    def change(self, table: HoodieTable, place: tuple[str, str], column: str, value: str | float) -> None:
        """Upsert one row as Hudi reads it, with another value in a column and greater ordering values.

        ``place``: partition path and record key.
        """
        config = table.config
        settings = {**self._settings(table), "hoodie.datasource.write.operation": "upsert"}
        at = {"path": place[0], "key": place[1], "ordering": list(config.deciding_fields), "drop": list(META_COLUMNS)}
        self._order(do="change", table=table.base_path, column=column, value=value, options=settings, **at)

    def _settings(self, table: HoodieTable) -> dict[str, str]:
        """What a user of Hudi's DataFrame writer says of a table that is there."""
        config = table.config
        settings = {
            "hoodie.table.name": config.name,
            "hoodie.datasource.write.table.type": config.table_type,
            "hoodie.datasource.write.recordkey.field": ",".join(config.record_key_fields),
            "hoodie.datasource.write.partitionpath.field": ",".join(config.partition_fields),
            "hoodie.datasource.write.precombine.field": ",".join(config.ordering_fields),
            "hoodie.datasource.write.hive_style_partitioning": str(config.hive_style).lower(),
            "hoodie.datasource.write.keygenerator.class": config.key_generator,
            "hoodie.upsert.shuffle.parallelism": "2",
            "hoodie.compact.inline": "false",
        }
        if config.times is not None:
            settings |= config.times.properties
        if not self.is_0x:
            settings |= {"hoodie.write.auto.upgrade": "false", "hoodie.write.table.version": str(config.version)}
        return settings

    def index(self, name: str) -> dict[str, str]:
        """Options for an index: BLOOM, SIMPLE, or RECORD for the record index in the metadata table."""
        if name != "RECORD":
            return {"hoodie.index.type": name, "hoodie.metadata.enable": "false"}
        return {
            "hoodie.index.type": "RECORD_INDEX" if self.is_0x else "GLOBAL_RECORD_LEVEL_INDEX",
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.record.index.enable": "true",
            "hoodie.metadata.record.index.min.filegroup.count": "1",
            "hoodie.metadata.global.record.level.index.enable": "true",
            "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
        }

    def sql(self, table: Path | str, *statements: str) -> list[dict[str, str]]:
        """Statements one after another, among them calls of Hudi's procedures; the rows of the last one, as text."""
        found: list[dict[str, str]] = self._order(do="sql", table=str(table), statements=list(statements))["rows"]
        return found

    def locate(
        self, table: Path | str, keys: Sequence[str], partition: str | None = None
    ) -> dict[str, tuple[str, str]]:
        """(partition, file id) of the keys that Hudi's look-up finds in the record index; None: a global one."""
        self._count += 1
        path = self._folder / f"keys-{self._count}"
        path.write_text("\n".join(keys))
        rows = self._order(do="locate", table=str(table), keys=str(path), partition=partition)["rows"]
        assert len({key for key, _, _ in rows}) == len(rows), "a key with two places"
        return {key: (where, file_id) for key, where, file_id in rows}

    def ask_hfile(self, path: Path, keys: Sequence[str]) -> dict[str, list[str]]:
        """Of one HFile: its ``ends``, the keys that its bloom filter lets pass, and (1.x) those ``found`` behind it."""
        found: dict[str, list[str]] = self._order(do="hfile", table=str(path), keys=list(keys), native=not self.is_0x)[
            "rows"
        ]
        return found

    def sync(self, table: Path | str, options: Mapping[str, str]) -> None:
        """Hudi's HiveSyncTool on a table; `options`: its properties but for the base path."""
        base = {"hoodie.base.path": str(table), "hoodie.datasource.meta.sync.base.path": str(table)}
        self._order(do="sync", table=str(table), options={**base, **options})

    def _order(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise HudiError(f"Hudi {self.version}, {order['do']} of {order['table']}: {answer['error']}")
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer: dict[str, Any] = json.loads(line[len(ANSWER) :])
                return answer
        raise HudiError(f"Hudi {self.version} ended: {Path(self._log.name).read_text()[-4000:]}")
