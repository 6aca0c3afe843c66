"""The list of defects fits the code: each has its one place, and tests that are there."""

from __future__ import annotations

import pytest

from tests.support.defects import DEFECTS, Defect
from tests.support.paths import PACKAGE, ROOT


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: d.name)
def test_each_has_its_place_and_its_tests(defect: Defect) -> None:
    text = (PACKAGE / defect.file).read_text("utf-8")
    assert text.count(defect.old) == 1
    changed = text.replace(defect.old, defect.new)
    assert changed != text
    compile(changed, defect.file, "exec")
    assert [path for path in defect.tests if not (ROOT / path).exists()] == []
