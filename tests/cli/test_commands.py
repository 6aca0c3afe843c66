"""The list of the commands: it names what the files of cli/ declare, and one command imports no other one's file."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tagstream.cli import parser as parsing
from tagstream.cli.parser import GROUPS, MODULES, OVERVIEW, load, parser
from tests.support.paths import ROOT

CLI = Path(parsing.__file__).parent


def test_the_list_names_the_commands_that_the_files_declare() -> None:
    files = [path.stem for path in sorted(CLI.glob("*.py")) if re.search(r"(?m)^COMMANDS = ", path.read_text())]
    declared = {(c.group, c.name): file for file in files for c in import_module(f"tagstream.cli.{file}").COMMANDS}
    assert declared == MODULES
    for group, name in MODULES:
        assert (load(group, name).group, load(group, name).name) == (group, name)


def test_the_overview_names_every_command_and_no_other() -> None:
    text = OVERVIEW.partition("commands:")[2].rpartition("  `tagstream COMMAND")[0]
    parts = re.split(r"(?m)^  tagstream ", text)[1:]
    about = {part.split()[0]: re.sub(r"\s+", " ", part) for part in parts}
    assert [*about] == ["stream", *GROUPS]
    for group in GROUPS:
        names = {name for of, name in MODULES if of == group} - {""}
        words = set(re.findall(r"[a-z-]+", about[group].removeprefix(group)))
        assert names <= words, f"{names - words} of {group}: name them in OVERVIEW"
        lists = re.findall(r"(?<![\w-])[a-z-]+(?:, [a-z-]+)+", about[group]) if names and "..." in about[group] else []
        assert {name for found in lists for name in found.split(", ")} <= names


@pytest.mark.parametrize(
    ("argv", "files"),
    [
        (["table", "timeline", "--target-base-path", "t"], {"table", "table_health"}),  # `readable` is in the second
        (["fetch-jars"], {"fetch_jars"}),
    ],
)
def test_only_the_file_of_the_named_command_is_imported(argv: list[str], files: set[str]) -> None:
    program = (
        "import sys; from tagstream.cli.parser import parser; import tagstream.cli.text_output; parser(sys.argv[1:]);"
        "print(*(n for n, m in sys.modules.items() if n.startswith('tagstream.cli.') and hasattr(m, 'COMMANDS')));"
        "print(*({'pyspark', 'rocksdict', 'tagstream.streaming.job.job'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    names, heavy = done.stdout.splitlines()
    assert ({name.rpartition(".")[2] for name in names.split()}, heavy) == (files, "")


@pytest.mark.parametrize("argv", [[group, name] if name else [group] for group, name in MODULES])
def test_a_command_that_is_named_has_the_help_that_it_has_among_all(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for of in (parser(), parser(argv)):
        with pytest.raises(SystemExit):
            of.parse_args([*argv, "--help"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith(f"usage: tagstream {' '.join(argv)} ")
