"""Programs that tests need: a missing one is named with its cure, and whoever sets a machine up is told the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tools
from tests.support.paths import ROOT
from tests.support.tools import PACKAGES, install_command, run_tool, tool

INSTALL = "apt-get install -y --no-install-recommends prometheus chromium"


def test_a_program_that_is_missing_fails_the_test_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(tools, "_leave_out", [False])  # whatever this run was asked for
    with pytest.raises(AssertionError, match="promtool is not installed, .*: apt-get update && apt-get install -y"):
        tool("promtool")


def test_a_program_that_fails_shows_what_it_said() -> None:
    with pytest.raises(AssertionError, match=r"promtool check rules /nowhere ended with 1:\n.*/nowhere"):
        run_tool("promtool", "check", "rules", "/nowhere")


def test_every_page_and_the_ci_name_the_same_packages() -> None:
    for name in (".ci/run", "CONTRIBUTING.md"):
        assert INSTALL in (ROOT / name).read_text("utf-8"), name
    for program in PACKAGES:
        assert f"command -v {program}" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_without_rights_one_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert tools.main() == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith("not installed: promtool, chromium. Tests that need them are not run") and INSTALL in line


def test_root_on_debian_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls"
    for name, text in (("apt-get", f'echo "$@" >> {calls}'), ("sh", f'exec {shutil.which("sh")} "$@"')):
        (tmp_path / name).write_text(f"#!{shutil.which('sh')}\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert tools.main() == 0
    assert calls.read_text().splitlines() == ["update", INSTALL.removeprefix("apt-get ")]
    assert capfd.readouterr().out.splitlines()[0] == f"installing promtool, chromium: {install_command()}"


def test_tests_without_their_program_are_left_out_and_listed(tmp_path: Path) -> None:
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "java").symlink_to(java)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--without-missing-tools"]
    place = "tests/streaming/monitor/test_metrics.py::test_promtool_finds_nothing_to_say"
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([*command, place], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not run: 1 tests need programs that are not installed" in done.stdout
    assert any(line.startswith("promtool: ") and "test_metrics.py" in line for line in done.stdout.splitlines())
