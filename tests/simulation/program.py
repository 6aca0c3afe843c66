"""A history as a program: settings and steps, drawn from one seed or read from JSON, run, and made smaller when it fails."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tagstream.table.file_group.change_file import LoggingMode
from tests.simulation import checks, commands, operations, others  # noqa: F401 (their actions are known by name)
from tests.simulation.settings import Settings
from tests.simulation.steps import ACTIONS, Step, draw
from tests.simulation.world import World

_STEPS = 10
_SHARED = 0.5  # of the histories that may have two streams
_LOGGED = 0.2  # of the histories, whose tables have change files
_RINGS = 0.6  # of the tables with a bucket index
_FILES = 0.2  # of the histories that may read files
_OPERATIONS = 0.25  # of the histories that may have another one
MORE, _MORE = ("stream_of_deletes", "expire"), 0.15  # steps that are drawn apart, and their share of the histories
LONGEST_S = 300  # a history takes a second or two, on a slow machine ten times that


@dataclass(frozen=True)
class Program:
    """``seed`` names it; what happens is in ``settings`` and ``steps`` alone."""

    seed: int
    settings: Settings
    steps: tuple[Step, ...]

    @staticmethod
    def of(seed: int, steps: int = _STEPS) -> Program:
        """The history of a seed."""
        random = Random(seed)
        settings = Settings.draw(random)
        if Random(f"streams of {seed}").random() < _SHARED:  # apart, so that the others stay as they were
            settings = settings.shared()
        logged = Random(f"change files of {seed}")
        if logged.random() < _LOGGED:
            settings = replace(settings, change_files=logged.choice([mode.value for mode in LoggingMode]))
        rings = Random(f"rings of {seed}")
        if rings.random() < _RINGS:
            settings = settings.with_rings(rings)
        other = Random(f"operations of {seed}")
        if other.random() < _OPERATIONS:
            settings = settings.with_operation(other)
        sources = Random(f"sources of {seed}")
        if sources.random() < _FILES:
            settings = settings.with_files(sources)
        drawn = draw(random, settings, random.randint(steps // 2, steps))
        for kind in MORE:
            if other.random() < _MORE:
                at = other.randint(1, len(drawn) - 1)
                drawn.insert(at, Step(kind, other.getrandbits(32)))
        return Program(seed, settings, tuple(drawn))

    @staticmethod
    def from_json(text: str) -> Program:
        """What :meth:`to_json` gave."""
        doc = json.loads(text)
        return Program(doc["seed"], Settings.from_json(doc["settings"]), tuple(Step(*step) for step in doc["steps"]))

    def to_json(self) -> str:
        """A program that runs again (``python -m tests.simulation.run --program FILE``)."""
        steps = [step.to_json() for step in self.steps]
        return json.dumps({"seed": self.seed, "settings": self.settings.to_json(), "steps": steps})

    def has(self, words: Iterable[str]) -> bool:
        """Whether it has all of these: kinds of steps, or settings with a part of their value ("metadata=column_stats")."""
        kinds = {step.kind for step in self.steps}

        def there(word: str) -> bool:
            name, equals, value = word.partition("=")
            return value in str(getattr(self.settings, name)) if equals else name in kinds

        return all(there(word) for word in words)


@dataclass(frozen=True)
class Outcome:
    """``problems``: what was wrong, empty where all held; ``log``: what happened. ``steps``: that were done."""

    problems: tuple[str, ...]
    log: tuple[str, ...]
    steps: int

    @property
    def kind(self) -> str:
        """The first problem without what differs from one run to the next: two with the same kind are one failure."""
        if not self.problems:
            return ""
        words = self.problems[0].split(":")[:2]
        return ":".join(words)[:40] if words[0] not in ("ours", "hudi-rs") else words[0] + self.problems[0][-12:]


def run(program: Program, folder: Path, on_line: Callable[[str], None] = lambda _: None) -> Outcome:
    """Let it happen in a folder of its own, which is empty before and gone afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = logging.getLogger("tagstream")
    before = signal.signal(signal.SIGALRM, _endless)
    signal.alarm(LONGEST_S)
    level = log.level
    log.setLevel(logging.CRITICAL)  # what happens is noted by the world
    world = World(program.settings, folder)
    world.log = _Lines(on_line)
    problems: list[str] = []
    done = 0
    try:
        for done, step in enumerate(program.steps, 1):
            world.say(f"{step.kind} {step.seed}")
            world.random.seed(step.seed)
            ACTIONS[step.kind](world)
            problems = checks.quick(world)
            if not problems and (world.random.random() < 0.25 or done == len(program.steps)):
                problems = checks.deep(world)
            if problems:
                break
    except (Exception, Endless) as error:
        problems = [f"{type(error).__name__}: {error}", traceback.format_exc()[-2500:]]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        log.setLevel(level)
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(tuple(problems), tuple(world.log), done)


class Endless(BaseException):
    """A history does not end. No Exception: nothing of the product may catch it and go on."""


def _endless(_number: int, _frame: object) -> None:
    raise Endless(f"it has not ended after {LONGEST_S} seconds")


class _Lines(list[str]):
    """A list that shows its lines as they come."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        super().__init__()
        self._on_line = on_line

    def append(self, line: str) -> None:
        super().append(line)
        self._on_line(line)


def shrink(program: Program, folder: Path, kind: str, tries: int = 60) -> Program:
    """A program with fewer steps and plainer settings that fails in the same way; ``tries``: runs that it may take."""
    left = tries

    def fails(candidate: Program) -> bool:
        nonlocal left
        if left <= 0:
            return False
        left -= 1
        return run(candidate, folder).kind == kind

    outcome = run(program, folder)
    best = replace(program, steps=program.steps[: outcome.steps])
    size = max(1, len(best.steps) // 2)
    while size >= 1 and left > 0:
        start = 0
        while start < len(best.steps) and left > 0:
            fewer = replace(best, steps=best.steps[:start] + best.steps[start + size :])
            if fails(fewer):
                best = fewer
            else:
                start += size
        size //= 2
    plain, own = Settings(), best.settings
    for name in own.to_json():
        if name in ("version", "table_type", "index"):
            continue
        simpler = replace(best, settings=replace(best.settings, **{name: getattr(plain, name)}))
        if fails(simpler):
            best = simpler
    return best
