"""Words that texts of this project do not use, and the plain ones: ``python -m tests.support.words``, in ``make check``.

Texts are docstrings, comments and messages (strings of several words) of sources, and pages of the documentation without
their code. Of the changelog only the newest section counts. A folder is checked when it is in :data:`CLEAN`.

``--sample 30 --seed 1`` prints 30 random sentences with their places, for a reader who checks them.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT


@dataclass(frozen=True)
class Phrase:
    """``pattern``: a regular expression, in any case. ``reason``: why it is not used. ``plain``: what to write."""

    pattern: str
    reason: str
    plain: str


PHRASES = (
    Phrase(r"\banew\b", "old-fashioned", "again"),
    Phrase(r"\b(?:is|are|was|were|be|been|being) told\b", "programs are not told", "is called with, has, gets"),
    Phrase(r"\b(?:taken|take|takes|took|taking) back\b", "Hudi's word is another", "rolled back, undone"),
    Phrase(r"(?<!\bthere )\bis no (?!longer\b)", "inverted", "is not a"),
    Phrase(r"\b(?:goes|go|went|gone|going) on\b", "two words of speech", "continues"),
    Phrase(r"\bbeside the\b", "a place, or an addition?", "in parallel with, next to, in addition to"),
    Phrase(r"\b(?:stands|stand|stood|standing) in\b", "a picture", "is in, replaces"),
    Phrase(r"\bof ours\b", "indirect", "our, this program's"),
    Phrase(r"\bwhat is there\b", "no noun", "existing, with the noun"),
    Phrase(r"\bbrought\b", "no field has this word", "given, converted, moved, updated"),
    Phrase(r"\belsewhere\b", "does not say where", "the place's name"),
    Phrase(r"\bemptied\b", "no field has this word", "deleted, without rows"),
    Phrase(r"\bstanding\b", "a picture", "existing, present, unfinished"),
    Phrase(r"\bfor ever\b", "old-fashioned", "always, without end"),
    Phrase(r"\b(?:carried|carries|carry|carrying) out\b", "longer than the word", "executed, run"),
    Phrase(r"\b(?:gives|give|gave|giving|given) way\b", "a picture", "stops, has lower priority"),
    Phrase(r"\b(?:takes|take|took|taken|taking) up\b", "a picture", "begins, executes, adopts"),
    Phrase(r"\bas told\b", "programs are not told", "by the options"),
    Phrase(r"\bkept in step\b", "a picture", "updated"),
    Phrase(r"\bwithout a (?:word|trace)\b", "a picture", "without a message"),
)
# Folders and files whose texts are checked.
CLEAN = ("tagstream", "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "conf")
# Texts that keep such a phrase: the file, a part of the line, and why.
EXCEPTIONS: tuple[tuple[str, str, str], ...] = ()
_CODE = re.compile(r"``[^`]+``|`[^`\n]+`")
_ANY = re.compile("|".join(phrase.pattern for phrase in PHRASES), re.I)
_CHANGELOG = "CHANGELOG.md"
# Files with texts: sources, pages, and files whose comments begin with #.
_SUFFIXES = (".py", ".md", ".properties", ".service", ".yaml", ".yml", ".sh")


@dataclass(frozen=True)
class Found:
    """A phrase in a file's text. ``text``: the text's line, for the message."""

    path: str
    line: int
    text: str
    phrase: Phrase

    def __str__(self) -> str:
        word = re.search(self.phrase.pattern, self.text, re.I)
        said = word[0] if word else ""
        return f"{self.path}:{self.line}: {said!r} ({self.phrase.reason}): write {self.phrase.plain}\n    {self.text}"


def texts_of_source(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings, comments and messages of a Python source."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def texts_of_page(page: str, *, newest: bool = False) -> Iterator[tuple[int, str]]:
    """(line, text) of a Markdown page without its code blocks; ``newest``: only the first section."""
    in_code, sections = False, 0
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            sections += line.startswith("## ")
            if newest and sections > 1:
                return
            yield number, line


def texts_of(path: str, content: str) -> Iterator[tuple[int, str]]:
    """(line, text) of a file's texts."""
    if path.endswith(".py"):
        return texts_of_source(content)
    return texts_of_page(content, newest=path == _CHANGELOG)


def sentences(path: str, content: str) -> Iterator[tuple[int, str]]:
    """(line, sentence) of a file's texts: sentences of at least four words. A paragraph of a page is joined first."""
    if path.endswith(".md"):
        texts: list[str] = []
        began = 0
        for line, text in [*texts_of_page(content, newest=path == _CHANGELOG), (0, "")]:
            if texts and (not text.strip() or re.match(r"\s*(?:[-|#>]|\d+\.)", text)):
                yield from _split(began, " ".join(texts))
                texts = []
            if text.strip() and not re.match(r"#|\|[-|]+$", text):
                began = began if texts else line
                texts.append(text.strip())
        return
    for line, text in texts_of(path, content):
        yield from _split(line, text)


def _split(line: int, text: str) -> Iterator[tuple[int, str]]:
    for paragraph in re.split(r"\n\s*\n", text):
        joined = " ".join(paragraph.split())
        for sentence in re.split(r"(?<=[.:;!?])\s+(?=[A-Z`\"])|\s\|\s", joined):
            if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= 4:
                yield line, sentence.strip(" |")


def sample(count: int, seed: int) -> list[str]:
    """``count`` random sentences with their places, for a reader who checks them."""
    found = [
        f"{name}:{line}: {text}"
        for path in clean_files()
        if path.suffix in (".py", ".md")
        for name in (path.relative_to(ROOT).as_posix(),)
        for line, text in sentences(name, path.read_text("utf-8"))
    ]
    return random.Random(seed).sample(found, count)


def find(path: str, content: str) -> Iterator[Found]:
    """The phrases in a file's texts, without quoted code and exceptions."""
    texts = texts_of(path, content)
    allowed = [part for name, part, _ in EXCEPTIONS if name == path]
    for start, text in texts:
        # A phrase may be split by the end of a line.
        joined = re.sub(r"\s*\n\s*", " ", _CODE.sub("`code`", text))
        if not _ANY.search(joined):
            continue
        for phrase in PHRASES:
            for match in re.finditer(phrase.pattern, joined, re.I):
                around = joined[max(0, match.start() - 60) : match.end() + 60]
                if not any(part in around for part in allowed):
                    yield Found(path, start, around, phrase)


def clean_files() -> list[Path]:
    """The files whose texts are checked."""
    found = []
    for name in CLEAN:
        path = ROOT / name
        found += [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
    return found


def main(arguments: Sequence[str] = ()) -> int:
    """Print the phrases in clean folders; exit code 1 when there is one. With ``--sample`` print random sentences."""
    parser = argparse.ArgumentParser(description="Check the words of this project's texts.")
    parser.add_argument("--sample", type=int, metavar="N", help="print N random sentences instead")
    parser.add_argument("--seed", type=int, default=0, help="of the random sentences")
    given = parser.parse_args(arguments)
    if given.sample:
        print("\n".join(sample(given.sample, given.seed)))
        return 0
    found = [
        each for path in clean_files() for each in find(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
