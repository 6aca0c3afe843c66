"""What became of a case: right, refused by an expected line, or failed; and a summary of many."""

from __future__ import annotations

import re
import shutil
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tagstream.table.errors import TagstreamError
from tests.pairs.case import PairCase
from tests.pairs.events import events_of
from tests.pairs.options import ONE_START, lines_of
from tests.pairs.oracle import Oracle

# Behind what is wrong, for all problems of a file: how to leave the file as it is.
_HINT = re.compile(r"\nto keep a file unchanged, remove keys on the command line: .*$")


@dataclass(frozen=True)
class Outcome:
    """``line``: of a refusal that was right. ``problems``: what is wrong; none where the case is right."""

    name: str
    properties: Mapping[str, str]
    line: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """right, refused or failed."""
        return "failed" if self.problems else "right" if self.line is None else "refused"


def one_case(spark: SparkSession, folder: Path, values: Mapping[str, str], *, hudi_rs: bool = True) -> Outcome:
    """A new table of these values, and three batches."""
    case, oracle = PairCase(folder, spark, values), Oracle(values)
    name = ", ".join(f"{option}={value}" for option, value in values.items())
    expected = lines_of(values)
    try:
        for batch in events_of(values):
            case.send(batch)
            oracle.batch(batch)
            if values["starts"] != ONE_START:
                case.run()
        if values["starts"] == ONE_START:
            case.run()
        if expected:
            return Outcome(name, case.properties(), None, (f"started, and must say {' or '.join(expected)}",))
        return Outcome(name, case.properties(), None, tuple(case.problems(oracle, hudi_rs=hudi_rs)))
    except TagstreamError as e:
        text = without_hint(str(e))
        line = next((line for line in expected if re.search(line, text)), None)
        if line is None or "\n" in text:
            return Outcome(name, case.properties(), None, (f"refused: {type(e).__name__}: {e}",))
        left = case.table.exists() or (folder / "checkpoint").exists()
        return Outcome(name, case.properties(), line, ("refused, but something was made",) if left else ())
    except Exception as e:
        return Outcome(
            name, case.properties(), None, (f"{type(e).__name__}: {e}"[:2000], traceback.format_exc()[-3000:])
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def without_hint(text: str) -> str:
    """What is wrong, a line each."""
    return _HINT.sub("", text)


def summary(outcomes: Iterable[Outcome]) -> str:
    """Cases, right, refused by their lines, failed with what starts them again."""
    all_of = list(outcomes)
    kinds = Counter(outcome.kind for outcome in all_of)
    lines = Counter(outcome.line for outcome in all_of if outcome.kind == "refused")
    told = [f"cases {len(all_of)}: right {kinds['right']}, refused {kinds['refused']}, failed {kinds['failed']}"]
    told += [f"  refused {count:3d}: {line}" for line, count in sorted(lines.items(), key=lambda x: -x[1])]
    for outcome in all_of:
        if outcome.problems:
            told += [f"failed: {outcome.name}", *(f"  {problem}" for problem in outcome.problems)]
            told += [f"    {name}={value}" for name, value in outcome.properties.items()]
    return "\n".join(told)
