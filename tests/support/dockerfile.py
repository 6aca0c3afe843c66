"""A Dockerfile as its instructions, as far as this project's own uses them."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Dockerfile:
    """Pairs of an instruction and what follows it, lines that go on put together."""

    instructions: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> Dockerfile:
        """From a file."""
        lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
        whole = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
        pairs = (line.partition(" ") for line in whole if line.strip())
        return cls(tuple((name, rest.strip()) for name, _, rest in pairs))

    def all(self, name: str) -> list[str]:
        """What follows each instruction of that name."""
        return [rest for each, rest in self.instructions if each == name]

    def one(self, name: str) -> str:
        """What follows the only instruction of that name."""
        (rest,) = self.all(name)
        return rest

    def words(self, name: str) -> list[str]:
        """The only instruction of that name in its JSON form (ENTRYPOINT, CMD)."""
        return [str(word) for word in json.loads(self.one(name))]

    def env(self) -> dict[str, str]:
        """What its ENV instructions set."""
        return dict(pair.split("=", 1) for rest in self.all("ENV") for pair in shlex.split(rest))
