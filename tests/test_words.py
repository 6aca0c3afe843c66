"""Texts in clean folders have none of the words that ``tests/support/words.py`` lists."""

from __future__ import annotations

import re

import pytest

from tests.support import words
from tests.support.paths import ROOT
from tests.support.words import EXCEPTIONS, PHRASES, clean_files, find, sample, sentences


def test_clean_folders_have_plain_words() -> None:
    files = [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in clean_files()]
    assert len(files) > 50
    assert [str(found) for path, content in files for found in find(path, content)] == []


def test_listed_files_exist() -> None:
    assert [name for name in (path for path, _, _ in EXCEPTIONS) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    "text",
    [
        "It is made anew.",
        "The writer is told of it.",
        "The writers are told.",
        "The plan was taken back.",
        "This is no file.",
        "The job goes on.",
        "It is kept beside the file.",
        "It stands in the log.",
        "A commit of ours.",
        "Of what is there nothing stays.",
        "It was brought.",
        "It is elsewhere.",
        "A group was emptied.",
        "A standing delta.",
        "It is kept for ever.",
        "The plan is carried out.",
        "A clustering gives way.",
        "A job takes up the plan.",
        "As told by the options.",
        "It is kept in step.",
        "It is refused without a trace.",
    ],
)
def test_each_phrase_is_found(text: str) -> None:
    (in_docstring,) = find("tagstream/x.py", f'"""{text}"""\n')
    (in_comment,) = find("tagstream/x.py", f"x = 1  # {text}\n")
    (in_message,) = find("tagstream/x.py", f'raise ValueError("{text}")\n')
    (in_page,) = find("docs/x.md", f"# Title\n\n{text}\n")
    assert {each.phrase for each in (in_docstring, in_comment, in_message)} == {in_page.phrase}
    assert in_page.line == 3
    assert "write" in str(in_page)


def test_every_phrase_is_in_the_test_before() -> None:
    texts = test_each_phrase_is_found.pytestmark[0].args[1]
    assert [each.pattern for each in PHRASES if not any(re.search(each.pattern, text, re.I) for text in texts)] == []


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("tagstream/x.py", '"""There is no file; it is no longer there; outstanding work."""\n'),
        ("tagstream/x.py", '"""The argument ``standing``."""\nanew = keys_elsewhere(standing="elsewhere")\n'),
        ("docs/x.md", "# Title\n\n```\nit goes on\n```\n\nThe word `elsewhere`.\n"),
        ("CHANGELOG.md", "# Changelog\n\n## 0.2\n\nPlain.\n\n## 0.1\n\nIt goes on.\n"),
    ],
)
def test_other_texts_pass(path: str, content: str) -> None:
    assert list(find(path, content)) == []


def test_a_phrase_over_the_end_of_a_line_is_found() -> None:
    (found,) = find("tagstream/x.py", '"""The plan was taken\n    back."""\n')
    assert "taken back" in found.text


def test_an_exception_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "EXCEPTIONS", (("docs/x.md", "is no trick", "a quotation"),))
    assert [found.line for found in find("docs/x.md", "This is no trick.\nThis is no file.\n")] == [2]


def test_the_newest_section_of_the_changelog_counts() -> None:
    (found,) = find("CHANGELOG.md", "# Changelog\n\n## 0.2\n\nIt goes on.\n\n## 0.1\n\nIt goes on.\n")
    assert found.line == 5


def test_sentences_of_a_source_and_of_a_page() -> None:
    source = '"""First sentence of it here. The second\n    one is also long."""\nx = 1  # Short one.\n'
    assert list(sentences("tagstream/x.py", source)) == [
        (1, "First sentence of it here."),
        (1, "The second one is also long."),
    ]
    page = "# Title of a whole page\n\nA sentence over\ntwo lines here.\n\n- An item with four words\n"
    assert list(sentences("docs/x.md", page)) == [
        (3, "A sentence over two lines here."),
        (6, "- An item with four words"),
    ]


def test_the_sample_depends_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "clean_files", lambda: [ROOT / "CONTRIBUTING.md"])
    assert len(sample(5, 1)) == 5
    assert sample(5, 1) == sample(5, 1) != sample(5, 2)
