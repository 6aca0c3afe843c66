"""`tagstream sync`: a table at rest, against Glue by moto; a metastore that is not there."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagstream.cli.main import main
from tests.support.aws import aws_server, environment
from tests.support.kafka_broker import free_ports
from tests.support.table_version import table_version
from tests.table.writer import Writer, row

GLUE = ["--sync-tool-classes", "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"]


@pytest.fixture(scope="module")
def glue() -> Iterator[None]:
    with aws_server() as settings, environment(settings):
        yield


def run(folder: Path, *more: str) -> tuple[int, dict[str, object]]:
    out = io.StringIO()
    code = main(["sync", "--target-base-path", str(folder / "t"), "--json", *more], out)
    return code, json.loads(out.getvalue()) if out.getvalue() else {}


@pytest.mark.usefixtures("glue")
def test_a_table_at_rest(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "MERGE_ON_READ")
    writer.write([row(n, f"p{n % 2}", 1) for n in range(4)])
    props = tmp_path / "job.properties"
    props.write_text("hoodie.datasource.hive_sync.database=rest\nhoodie.datasource.hive_sync.table=orders\n")
    before = run(tmp_path, *GLUE, "--props", str(props), "--dry-run")[1]
    assert before["catalogs"] == [{"catalog": "Glue", "behind": "all of them: a sync looks at every partition"}]
    code, found = run(tmp_path, *GLUE, "--props", str(props))
    assert code == 0
    entries = found["entries"]
    assert isinstance(entries, list)
    assert [(e["name"], e["action"], e["added"]) for e in entries] == [
        ("orders_ro", "created", 2), ("orders_rt", "created", 2), ("orders", "created", 2),
    ]  # fmt: skip
    notes = str(found["warnings"])
    assert "is merge-on-read, and Trino, Athena and ClickHouse read only its base files" in notes
    assert ("Athena's Hudi support ends with version 6" in notes) == (table_version() > 6)
    writer.write([row(9, "p9", 1)])
    assert run(tmp_path, *GLUE, "--props", str(props), "--dry-run")[1]["catalogs"] == [
        {"catalog": "Glue", "behind": "1"}
    ]
    again = run(tmp_path, *GLUE, "--props", str(props))[1]["entries"]
    assert isinstance(again, list)
    assert [(e["action"], e["added"]) for e in again] == [("unchanged", 1)] * 3


@pytest.mark.usefixtures("glue")
def test_health_says_how_many_commits_a_catalogue_lacks(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE")
    writer.write([row(1, "p1", 1)])
    props = tmp_path / "job.properties"
    props.write_text(
        "hoodie.datasource.meta.sync.enable=true\nhoodie.datasource.hive_sync.database=health\n"
        f"hoodie.meta.sync.client.tool.class={GLUE[1]}\n"
    )
    assert health(tmp_path, "--props", str(props))["sync_behind"] == ["Glue: all"]
    assert run(tmp_path, "--props", str(props))[0] == 0
    assert health(tmp_path, "--props", str(props))["sync_behind"] == ["Glue: 0"]
    writer.write([row(2, "p2", 1)])
    writer.write([row(3, "p3", 1)])
    assert health(tmp_path, "--props", str(props))["sync_behind"] == ["Glue: 2"]
    assert "sync_behind" not in health(tmp_path)


def health(folder: Path, *more: str) -> dict[str, object]:
    out = io.StringIO()
    main(["table", "health", "--target-base-path", str(folder / "t"), "--json", *more], out)
    found: dict[str, object] = json.loads(out.getvalue())
    return found


@pytest.mark.usefixtures("glue")
def test_a_table_without_a_commit(tmp_path: Path) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE")
    code, found = run(tmp_path, *GLUE)
    assert (code, found["entries"]) == (0, [])


def test_a_metastore_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE")
    writer.write([row(1, "p1", 1)])
    uri = f"thrift://127.0.0.1:{free_ports(1)[0]}"
    code, _ = run(tmp_path, "--hoodie-conf", f"hoodie.datasource.hive_sync.metastore.uris={uri}")
    assert code == 1
    assert f"no metastore answers ({uri.removeprefix('thrift://')}" in capsys.readouterr().err


def test_a_wrong_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE")
    assert run(tmp_path, "--hoodie-conf", "hoodie.datasource.hive_sync.mode=jdbc")[0] == 2
    assert "HiveServer2" in capsys.readouterr().err
