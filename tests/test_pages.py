"""Every block of code in README and docs runs in a test, or a remark before it says why it does not; the site is built."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.cli.main import main
from tagstream.cli.parser import GROUPS, parser
from tagstream.streaming.options.cli import parser as stream_parser
from tagstream.streaming.options.cli import read_properties
from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.options.resolve import resolve
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.paths import ROOT
from tests.table.writer import Writer
from tests.test_readme import STORIES, blocks, clone, orders, run  # noqa: F401 (clone is a fixture)

PAGES = ["README.md", "CONTRIBUTING.md"]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
OPERATIONS, SERVICES = "docs/operations/operations.md", "docs/operations/services.md"
DATAFRAMES, RECORDS = "docs/guide/dataframes.md", "docs/guide/records.md"
COMMANDS, COMPATIBILITY = "docs/operations/commands.md", "docs/reference/compatibility.md"
BLOCK = re.compile(r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```", re.S | re.M)
# Blocks that other tests run or read, by page and a text in them.
ELSEWHERE = [
    ("README.md", "import tagstream", "tests/test_readme.py"),
    ("README.md", "spark-submit", "tests/test_readme.py"),
    ("README.md", "make run", "tests/test_readme.py"),
    (STORIES, "", "tests/test_readme.py"),
    (DATAFRAMES, "import tagstream", "tests/test_examples.py"),
    (DATAFRAMES, "--config-folder", "tests/streaming/job/test_run_tables.py"),
    (OPERATIONS, "tagstream fetch-jars --out", "tests/cli/test_fetch_jars.py"),
    (OPERATIONS, "/opt/tagstream/venv", "tests/test_operations.py"),
    (OPERATIONS, "docker build", "tests/test_operations.py"),
    (OPERATIONS, "spark://127.0.0.1:7077", "tests/test_operations.py"),
    (OPERATIONS, "--op BULK_INSERT", "tests/test_operations.py"),
    (OPERATIONS, "STORE=hdfs", "tests/drills/test_cluster_on_stores.py"),
    (OPERATIONS, "--deploy-mode cluster", "tests/streaming/test_cluster_mode.py"),
    (SERVICES, "create table if not exists", "tests/interop/test_services_page.py"),
    (SERVICES, "spark-sql", "tests/interop/test_services_page.py"),
]
HERE = [COMMANDS, RECORDS, COMPATIBILITY, SERVICES, DATAFRAMES]
PROPERTIES = "properties"


@dataclass(frozen=True)
class Block:
    """A fenced block. ``reason``: why it is not run, None where it is."""

    page: str
    kind: str
    text: str
    reason: str | None

    def commands(self) -> Iterator[list[str]]:
        """The words of its commands, a line each."""
        if self.kind == "sh":
            # A program in quotes over several lines is one word of its command.
            text = re.sub(r"\"[^\"]*\"", lambda found: found[0].replace("\n", " "), self.text.replace("\\\n", " "))
            for line in text.splitlines():
                yield shlex.split(line, comments=True)


def all_blocks() -> list[Block]:
    return [
        Block(page, found["kind"], found["text"], found["reason"])
        for page in PAGES
        for found in BLOCK.finditer((ROOT / page).read_text("utf-8"))
    ]


def of(page: str, kind: str) -> list[Block]:
    return [block for block in all_blocks() if (block.page, block.kind) == (page, kind)]


def test_every_block_is_run_or_says_why_not() -> None:
    def runs(block: Block) -> bool:
        elsewhere = any(block.page == page and text in block.text for page, text, _ in ELSEWHERE)
        return elsewhere or block.page in HERE or block.kind == PROPERTIES

    found = all_blocks()
    assert len(found) > 30
    assert [block for block in found if block.reason is None and not runs(block)] == []
    assert [test for *_, test in ELSEWHERE if not (ROOT / test).is_file()] == []


def test_every_command_of_the_project_is_one() -> None:
    """Its flags are known, also where the block is not run."""
    seen = 0
    for block in all_blocks():
        for words in block.commands():
            names = [Path(word).name for word in words]
            program = next((n for n, word in enumerate(words) if "=" not in word), 0)
            if names[program : program + 1] == ["tagstream"] or names[program + 1 : program + 3] == ["-m", "tagstream"]:
                rest = [word for word in words[names.index("tagstream") + 1 :] if not word.startswith("[")]
            elif "run_stream.py" in names:
                rest = words[names.index("run_stream.py") + 1 :]
            else:
                continue
            if rest[:1] and rest[0] in GROUPS:
                rest = rest if "[--props" not in words else rest[: rest.index("P") + 1]
                parser().parse_args(rest)
            else:
                given = rest[1:] if rest[:1] == ["stream"] else rest
                flags = [word for word in given if word.startswith("--") and word != "--config-folder"]
                known = {flag for action in stream_parser()._actions for flag in action.option_strings}
                known |= {"--base-path-prefix", *(flag for key in REGISTRY.keys for flag in key.flags)}
                assert {flag.partition("=")[0] for flag in flags} <= known, block.text
            seen += 1
    assert seen > 15


def test_every_link_leads_somewhere() -> None:
    """Also out of ``docs/``, where the site has no links. Anchors are those of a repository's pages."""
    broken = []
    for name in [*PAGES, "CHANGELOG.md", "examples/README.md"]:
        page = ROOT / name
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", page.read_text("utf-8")):
            if "://" in link:
                continue
            target = (page.parent / link).resolve() if link else page
            if not target.exists():
                broken.append(f"{name}: {link}")
            elif anchor and target.suffix == ".md":
                titles = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), flags=re.M)
                slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                if anchor not in slugs:
                    broken.append(f"{name}: {link}#{anchor}")
    assert broken == []


def test_every_page_is_in_the_site(tmp_path: Path) -> None:
    """As `make docs` builds it: a link that leads nowhere, and a page that the contents lack, are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {page.removeprefix("docs/").removesuffix(".md") for page in PAGES if page.startswith("docs/")}
    made = {path.relative_to(tmp_path / "site").with_suffix("") for path in (tmp_path / "site").rglob("*.html")}
    assert {str(path) for path in made} == pages | {"404"}
    first = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert not re.search(r'src="(?:https?:)?//|<link [^>]*href="(?:https?:)?//', first), "nothing from other hosts"


@pytest.mark.parametrize("page", sorted({block.page for block in all_blocks() if block.kind == PROPERTIES}))
def test_properties_are_known_keys(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(of(page, PROPERTIES)):
        if block.reason is None:
            file = tmp_path / f"{number}.properties"
            file.write_text(block.text)
            found = resolve(REGISTRY, read_properties(file))
            assert (found.problems, found.unknown, found.unsupported) == ([], [], [])


def test_reading_from_python(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ver", pa.int64()), ("device", pa.int64()),
                        ("room", pa.string()), ("number", pa.int64())])  # fmt: skip
    writer = Writer.without_metadata(tmp_path, "COPY_ON_WRITE", schema=schema)
    rooms = [
        {"id": f"{n}", "part": "p", "ver": 1, "device": n, "room": f"room {n % 3}", "number": 99 + n} for n in range(9)
    ]
    writer.write(rooms)
    (tmp_path / "out").mkdir()
    (tmp_path / "t").rename(tmp_path / "out" / "readings")
    first, second, third = (block.text for block in of(COMPATIBILITY, "python"))

    def printed(code: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = printed(first)
    assert said.startswith("t ") and re.search(r"│ +106 │", said), said
    assert printed(second) == "0\n"
    assert sorted(re.findall(r"^(\d+) \[", printed(third), re.M)) == ["4", "5"]  # one batch a file group


@pytest.mark.spark
@pytest.mark.extended("a stream with bad records, and every command of the pages on it")
def test_the_commands_of_the_pages(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {"hoodie.write.table.version": "8"})
    ev.write_files([ev.Event(f"k{n}", f"p{n % 2}", n + 1) for n in range(20)], case.source, 10)
    (case.source / "bad.json").write_text("no JSON\n")
    case.run("--commit-on-errors")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample.json").write_text((case.source / sorted(os.listdir(case.source))[-1]).read_text())
    bad = tmp_path / "bad"
    listed: list[str] = []
    for page in (RECORDS, SERVICES, COMMANDS):
        for block in of(page, "sh"):
            for words in block.commands():
                if words[0] != "tagstream":
                    continue
                usage = next((n for n, word in enumerate(words) if word.startswith("[")), len(words))
                places = {"T": case.table, "C": case.checkpoint, "D": tmp_path / "new", "P": case.source, "FOLDER": bad,
                          "/data/orders": case.table}  # fmt: skip
                asked = [str(places.get(word, word)) for word in words[1:usage]]
                if asked[:2] == ["quarantine", "show"]:
                    asked[2] = listed[0]
                elif asked[:2] == ["services", "run"]:
                    asked.append("--once")
                with open(tmp_path / "said", "w+") as out:
                    assert main([*asked], out) == 0, (words, (tmp_path / "said").read_text())
                said = (tmp_path / "said").read_text()
                if asked[:2] == ["quarantine", "list"]:
                    listed = re.findall(r"^(\d+\.\d+\.\d+\.\d+)", said, flags=re.M)
                    assert listed, said
    assert (tmp_path / "table.html").is_file() and any(bad.iterdir()) and (tmp_path / "new").is_dir()


@pytest.mark.spark
@pytest.mark.extended("the table of the guide's first page, written once more through a transformation")
def test_the_transformation(clone: Path) -> None:
    first, write, read, *_ = blocks()
    (block,) = [block for block in of(DATAFRAMES, "sh") if "--transformer-class" in block.text]
    run(first, clone, "first")
    run(write.replace("--source-class", "--dry-run --source-class"), clone, "files")
    run(block.text, clone, "transformed")
    assert orders(run(read, clone, "read")) == [["o-1", "2026-01-06", "9", "SENT"], ["o-3", "2026-01-06", "8", "NEW"]]
