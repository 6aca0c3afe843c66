"""`make versions` runs the files whose tests make tables of the kind that is asked for, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.versioned import versioned_files

FILES = {
    "tests/conftest.py": "from tests.support.table_version import using",
    "tests/support/table_version.py": "",
    "tests/support/started.py": "from tests.support.table_version import table_version",
    "tests/table/writer.py": "from tests.support.table_version import table_version",
    "tests/table/test_direct.py": "from tests.support import table_version",
    "tests/table/test_by_another.py": "from tests.table.writer import create",
    "tests/table/test_process.py": "COMMAND = ['-m', 'tests.support.started']",
    "tests/table/test_none.py": "from pathlib import Path",
    "tests/cli/conftest.py": "from tests.table.writer import create",
    "tests/cli/deep/test_fixture.py": "def test(table): ...",
    "tests/harness/test_writer.py": "from tests.table.writer import create",
}


def test_files_that_reach_the_kind_of_tables_are_named_and_no_others(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert versioned_files(tmp_path) == [
        "tests/cli/deep/test_fixture.py",
        "tests/table/test_by_another.py",
        "tests/table/test_direct.py",
        "tests/table/test_process.py",
    ]


@pytest.mark.extended("it looks at the whole of the sources, as `make check` does")
def test_of_the_projects_own_files_those_that_stream_are_named_and_decoders_are_not() -> None:
    found = versioned_files()
    assert "tests/drills/test_crash_points.py" in found
    assert "tests/behaviours/test_index_suite.py" in found
    assert "tests/bootstrap/test_run.py" in found
    assert not [name for name in found if name.startswith("tests/streaming/source/decode/")]
