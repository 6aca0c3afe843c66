"""The list of steps is the list of what code reports."""

from __future__ import annotations

import ast
from functools import cache

from tagstream.table.steps import CRASH_POINTS, Step
from tests.support.paths import PACKAGE


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """(file, call) of the files that report steps."""
    texts = {str(path): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {name: ast.parse(text) for name, text in texts.items() if "reach" in text or "Step." in text}
    return [(name, node) for name, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name_of(call: ast.Call) -> str:
    """``reach`` of ``job.env.crash.reach(...)``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_each_step_is_reported_by_some_code() -> None:
    reported: set[str] = set()
    for _, call in calls():
        if name_of(call) in ("reach", "reach_logged", "Service"):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            steps = (a for a in given if isinstance(a, ast.Attribute) and getattr(a.value, "id", "") == "Step")
            reported.update(step.attr for step in steps)
    assert reported == set(Step.__members__)


def test_no_code_reports_another_step() -> None:
    texts = [
        (path, call.args[0].value)
        for path, call in calls()
        if name_of(call).startswith("reach") and call.args and isinstance(call.args[0], ast.Constant)
    ]
    assert texts == []


def test_names_are_those_of_their_members() -> None:
    assert [step.name.lower() for step in Step] == [step.value for step in Step]


def test_each_crash_point_is_there_once() -> None:
    assert len(set(CRASH_POINTS)) == len(CRASH_POINTS)
