"""Programs that tests need: a missing one is named with its cure, and whoever sets a machine up is told the same."""

from __future__ import annotations

import pytest

from tests.support.paths import ROOT
from tests.support.tools import PACKAGES, run_tool, tool

INSTALL = "apt-get install -y --no-install-recommends prometheus chromium"


def test_a_program_that_is_missing_fails_the_test_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AssertionError, match="promtool is not installed .*: apt-get update && apt-get install -y"):
        tool("promtool")


def test_a_program_that_fails_shows_what_it_said() -> None:
    with pytest.raises(AssertionError, match=r"promtool check rules /nowhere ended with 1:\n.*/nowhere"):
        run_tool("promtool", "check", "rules", "/nowhere")


def test_every_page_and_the_ci_name_the_same_packages() -> None:
    for name in (".ci/run", "CONTRIBUTING.md"):
        assert INSTALL in (ROOT / name).read_text("utf-8"), name
    readme = (ROOT / "README.md").read_text("utf-8")
    for program, package in PACKAGES.items():
        assert f"`{package}`" in readme
        assert f"command -v {program}" in (ROOT / ".ci" / "run").read_text("utf-8")
