"""Names that docstrings quote exist: in the code, among the keys, as files, or in a list of outside names."""

from __future__ import annotations

import pytest

from tests.support.docstring_names import OUTSIDE, Package, Quoted, defined, quoted_names, the_package
from tests.support.packages import name_of
from tests.support.paths import PACKAGE

SOURCE = '''
"""Uses ``Table.read`` and `other.helper` (``docs/page.md``)."""
LIMIT = "hoodie.some.key"
class Table:
    """Has ``rows``."""
    rows: int = 0
    def read(self, count):
        """At most ``count`` :attr:`rows`, or :data:`LIMIT`; ``a b`` and ``x > 1`` are no names."""
        self.seen = count
'''


def test_every_quoted_name_exists() -> None:
    package = the_package()
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for each in package.unknown(path.read_text("utf-8")):
            found.setdefault(name_of(path), []).append(f"{each.text} (line {each.line})")
    assert found == {}, "correct the name, or add one of another program to OUTSIDE in tests/support/docstring_names.py"


def test_no_outside_name_is_listed_twice() -> None:
    names = [name for group in OUTSIDE.values() for name in group]
    assert len(names) == len(set(names))


@pytest.fixture
def package() -> Package:
    modules = {"": defined(""), "table": defined(SOURCE), "some.other": defined("def helper(): ...")}
    return Package(modules, frozenset({"docs/page.md", "tagstream/some/other.py"}))


def test_names_are_found_in_a_source() -> None:
    assert [(found.role, found.text) for found in quoted_names(SOURCE)] == [
        ("", "Table.read"),
        ("", "other.helper"),
        ("", "docs/page.md"),
        ("", "rows"),
        ("", "count"),
        ("attr", "rows"),
        ("data", "LIMIT"),
    ]


def test_existing_names_pass(package: Package) -> None:
    assert package.unknown(SOURCE) == []


@pytest.mark.parametrize(
    "text",
    [
        "``some.other.helper``",
        "``some.other``",
        "`table`",
        ":func:`tagstream.some.other.helper`",
        ":meth:`Table.read`",
        "``read()``",
        "``Table.seen``",
        "``hoodie.some.key``",
        "``hoodie.some.*``",
        "``some/other.py``",
        "``page.md``",
        "``ValueError``",
        "``T.commit.requested``",
        "``DataStreamWriter.trigger``",
    ],
)
def test_each_kind_of_name_passes(text: str, package: Package) -> None:
    assert package.unknown(f'"""{text}"""\nimport x\n') == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("``invented_name``", "invented_name"),
        ("`invented_name`", "invented_name"),
        ("``Table.invented``", "Table.invented"),
        ("``other.invented``", "other.invented"),
        ("``invented.helper``", "invented.helper"),
        (":func:`invented`", "invented"),
        (":data:`hoodie.some.key`", "hoodie.some.key"),
        ("``hoodie.invented.key``", "hoodie.invented.key"),
        ("``hoodie.invented.*``", "hoodie.invented.*"),
        ("``some/invented.py``", "some/invented.py"),
        ("``invented.md``", "invented.md"),
        ("``T.Invented``", "T.Invented"),
    ],
)
def test_an_invented_name_is_found(text: str, name: str, package: Package) -> None:
    (found,) = package.unknown(f'def f():\n    """Does {text}."""\n')
    assert (found.text, found.line) == (name, 1)


def test_the_docstring_itself_does_not_define_its_names(package: Package) -> None:
    source = '"""Text."""\nclass C:\n    """Has ``invented``."""\n'
    assert package.unknown(source) == [Quoted("invented", "", 2)]
