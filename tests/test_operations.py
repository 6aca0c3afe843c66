"""The commands and examples of docs/operations/operations.md."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tagstream
from tagstream.streaming.options.cli import load_options
from tests.support.dist import build
from tests.support.kafka_broker import free_ports
from tests.support.paths import ROOT
from tests.test_readme import blocks, clone, run

__all__ = ["clone"]  # the fixture
PAGE = "docs/operations/operations.md"


@pytest.mark.deployment
@pytest.mark.spark
def test_a_cluster_runs_what_make_dist_made(clone: Path) -> None:
    _, write, *_ = blocks()
    submit, start, *_ = [block for block in blocks(PAGE) if "spark://127.0.0.1:7077" in block]
    run(write.split(".venv/bin/python run_stream.py")[0], clone, "source")
    build(clone / "dist")
    port, master_page, worker_page = map(str, free_ports(3))
    start = start.replace("--port 7077", f"--port 7077 --webui-port {master_page}")
    start = start.replace("--cores 2", f"--cores 2 --webui-port {worker_page} --work-dir {clone}/work")
    start = start.replace(" &\n", ' & pids="$pids $!"\n')
    both = f"pids=\ntrap 'kill $pids' EXIT\nexport SPARK_DAEMON_MEMORY=256m\n{start}\n{submit}".replace("7077", port)
    said = run(both, clone, "cluster")
    assert "end of run: batches 1, records 6" in said
    read = run(blocks()[2], clone, "read")
    shown = [line.split()[1:] for line in read.splitlines() if " o-" in line]
    assert sorted(shown) == [["o-1", "2026-01-06", "9", "sent"], ["o-3", "2026-01-06", "8", "new"]]


@pytest.mark.extended("a bulk load, an index load and a stream, in a Spark each")
@pytest.mark.spark
def test_a_bulk_insert_and_then_the_stream(clone: Path) -> None:
    """The page's commands: the stream updates and deletes rows of the load, and adds one."""
    (block,) = [block for block in blocks(PAGE) if "--op BULK_INSERT" in block]
    loaded = [{"id": f"o-{i}", "day": f"2026-01-0{i % 3 + 1}", "ts": i, "state": "loaded"} for i in range(1_000)]
    (clone / "out" / "export").mkdir(parents=True)
    (clone / "out" / "orders-in").mkdir()
    for first in (0, 500):
        pq.write_table(pa.Table.from_pylist(loaded[first : first + 500]), clone / "out" / "export" / f"{first}.parquet")
    changed = {**loaded[1], "ts": 2_000, "state": "sent"}
    changes = [changed, {"id": "o-2", "ts": 2_001, "_hoodie_is_deleted": True}, {**changed, "id": "o-new"}]
    (clone / "out" / "orders-in" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in changes))
    told = run(block, clone, "load")
    assert "index loaded" in told and "1,000 keys" in told
    found = (
        tagstream.open_table(clone / "out" / "orders").scan(columns=["id", "day", "ts", "state"]).to_arrow().to_pylist()
    )
    expected = {row["id"]: row for row in [*loaded, changed, {**changed, "id": "o-new"}] if row["id"] != "o-2"}
    assert sorted(found, key=lambda row: row["id"]) == sorted(expected.values(), key=lambda row: row["id"])


def arguments(name: str) -> list[str]:
    """What the example gives to the job."""
    text = (ROOT / "conf" / "run" / name).read_text("utf-8")
    if name.endswith(".service"):
        (line,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", text, flags=re.M)
        assert line.replace("\\\n", " ").split() and line in (ROOT / PAGE).read_text("utf-8")
        return shlex.split(line.replace("\\\n", " ").replace("%i", "orders"))[2:]
    return re.findall(r"^ +- (--\S+)$", text, flags=re.M)


@pytest.mark.parametrize("name", ["tagstream@.service", "deployment.yaml", "spark-application.yaml"])
def test_the_examples_are_taken_by_the_command_line(tmp_path: Path, name: str) -> None:
    properties = tmp_path / "orders.properties"
    text = (ROOT / "conf" / "orders.properties").read_text("utf-8")
    more = ["hoodie.base.path=/data/orders", "hoodie.table.name=orders"]
    more += ["bootstrap.servers=broker:9092", "hoodie.streamer.source.kafka.topic=orders"]
    properties.write_text("\n".join([text, *more]))
    given = [a.replace("/etc/tagstream/orders.properties", str(properties)) for a in arguments(name)]
    options = load_options(given)
    assert options.run.continuous and options.run.checkpoint_dir.endswith("/orders")


def test_the_command_of_the_image_is_the_one_that_it_names_and_its_options_are_taken(tmp_path: Path) -> None:
    (block,) = [block for block in blocks(PAGE) if "docker build" in block]
    (named,) = re.findall(
        r"^# +(docker build .*)$", (ROOT / "conf" / "run" / "Dockerfile").read_text("utf-8"), flags=re.M
    )
    assert named in block
    words = shlex.split(block.partition("docker run ")[2].replace("\\\n", " "))
    image = named.split()[named.split().index("--tag") + 1]
    given = [word.replace("/etc/tagstream", str(ROOT / "conf")) for word in words[words.index(image) + 1 :]]
    assert given[0] == "stream"
    options = load_options(given[1:])
    places = {word.split(":")[1] for word in words[: words.index(image)] if ":/" in word}
    assert places == {"/local", "/data", "/etc/tagstream"}
    assert options.run.checkpoint_dir.startswith("/data/")


def test_what_the_commands_for_the_unit_install_is_there() -> None:
    (block,) = [block for block in blocks(PAGE) if "systemctl enable" in block]
    unit = (ROOT / "conf" / "run" / "tagstream@.service").read_text("utf-8")
    installed = [line.split() for line in block.splitlines() if line.startswith("install ")]
    assert all((ROOT / word).is_file() for words in installed for word in words if word.startswith("conf/"))
    (user,) = re.findall(r"^useradd .* (\S+)$", block, flags=re.M)
    assert f"\nUser={user}\n" in unit
    (jars,) = re.findall(r"fetch-jars --out (\S+)$", block, flags=re.M)
    assert f"TAGSTREAM_JARS={jars}\n" in unit


def test_the_page_shows_lines_of_the_unit() -> None:
    text = (ROOT / "conf" / "run" / "tagstream@.service").read_text("utf-8")
    shown = re.search(r"```ini\n(.*?)```", (ROOT / PAGE).read_text("utf-8"), flags=re.S)
    assert shown is not None and all(line in text for line in shown.group(1).splitlines())
