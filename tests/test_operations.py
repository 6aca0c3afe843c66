"""The commands and examples of docs/operations.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tagstream.streaming.options.cli import load_options
from tests.support.dist import build
from tests.support.kafka_broker import free_ports
from tests.support.paths import ROOT
from tests.test_readme import blocks, clone, run

__all__ = ["clone"]  # the fixture
PAGE = "docs/operations.md"


@pytest.mark.extended("starts a Spark cluster")
@pytest.mark.spark
def test_a_cluster_runs_what_make_dist_made(clone: Path) -> None:
    _, write, *_ = blocks()
    submit, start, _ = blocks(PAGE)
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


def arguments(name: str) -> list[str]:
    """What the example gives to the job."""
    text = (ROOT / "conf" / "run" / name).read_text("utf-8")
    if name.endswith(".service"):
        (line,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", text, flags=re.M)
        assert line.replace("\\\n", " ").split() and line in (ROOT / PAGE).read_text("utf-8")
        return shlex.split(line.replace("\\\n", " ").replace("%i", "orders"))[2:]
    return re.findall(r"^ +- (--\S+)$", text, flags=re.M)


@pytest.mark.parametrize("name", ["tagstream@.service", "deployment.yaml"])
def test_the_examples_are_taken_by_the_command_line(tmp_path: Path, name: str) -> None:
    properties = tmp_path / "orders.properties"
    text = (ROOT / "conf" / "orders.properties").read_text("utf-8")
    more = ["hoodie.base.path=/data/orders", "hoodie.table.name=orders"]
    more += ["bootstrap.servers=broker:9092", "hoodie.streamer.source.kafka.topic=orders"]
    properties.write_text("\n".join([text, *more]))
    given = [a.replace("/etc/tagstream/orders.properties", str(properties)) for a in arguments(name)]
    options = load_options(given)
    assert options.continuous and options.checkpoint_dir.endswith("/orders")


def test_the_page_shows_lines_of_the_unit() -> None:
    text = (ROOT / "conf" / "run" / "tagstream@.service").read_text("utf-8")
    shown = re.search(r"```ini\n(.*?)```", (ROOT / PAGE).read_text("utf-8"), flags=re.S)
    assert shown is not None and all(line in text for line in shown.group(1).splitlines())


def test_every_link_of_the_docs_leads_somewhere() -> None:
    broken = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text("utf-8")
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", text):
            if "://" in link:
                continue
            target = (page.parent / link).resolve() if link else page
            if not target.exists():
                broken.append(f"{page.name}: {link}")
            elif anchor and target.suffix == ".md":
                titles = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), flags=re.M)
                slugs = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
                if anchor not in slugs:
                    broken.append(f"{page.name}: {link}#{anchor}")
    assert broken == []
