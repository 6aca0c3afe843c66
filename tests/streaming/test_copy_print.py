"""Which copy of the package a process runs: the same sources are the same copy, in a folder as in a zip."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.streaming.copy_print import sources_print, this_copy
from tagstream.streaming.errors import EnvironmentProblemError
from tests.support.paths import PACKAGE

ASK = "from tagstream.streaming.copy_print import this_copy; c = this_copy(); print(c.folder, c.version, c.sources)"


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, folder / "tagstream", ignore=shutil.ignore_patterns("__pycache__")))


def asked(path: str, folder: Path) -> list[str]:
    """What a process says that is started in ``folder`` and finds the package at ``path``."""
    env = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-c", ASK]
    done = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_a_copy_in_a_folder_and_one_in_a_zip_are_the_same(tmp_path: Path) -> None:
    here = this_copy()
    assert here.folder == str(PACKAGE)
    there = copied(tmp_path / "there")
    assert asked(str(there.parent), tmp_path) == [str(there), here.version, str(here.sources)]
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in there.rglob("*"):
            packed.write(path, path.relative_to(there.parent))
    # Spark's executors have what was shipped in the second form.
    for path in (str(archive), f"./{archive.name}", archive.name):
        assert asked(path, tmp_path) == [f"{archive}/tagstream", here.version, str(here.sources)], path


def test_one_byte_a_name_or_a_file_more_is_another_copy(tmp_path: Path) -> None:
    there = copied(tmp_path)
    same = sources_print(str(there))
    assert same == this_copy().sources
    (there / "py.typed").write_text("no source\n")
    assert sources_print(str(there)) == same
    (there / "more.py").touch()
    assert sources_print(str(there)) != same
    (there / "more.py").unlink()
    (there / "version.py").write_text((there / "version.py").read_text() + "\n")
    assert sources_print(str(there)) != same


def test_another_copy_is_refused_with_both_folders() -> None:
    driver = this_copy()
    driver.check_here()
    replace(driver, folder="/of/another/host/tagstream").check_here()
    other = replace(driver, folder="/driver/tagstream", sources=driver.sources + 1)
    with pytest.raises(EnvironmentProblemError, match=f"they found {PACKAGE} .* the driver /driver/tagstream"):
        other.check_here()
