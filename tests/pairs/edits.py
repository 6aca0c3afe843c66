"""The second mode: one or two settings are edited between the batches of a table.

The rows stay right, or the start refuses in a line that is known here, and the settings of before go on.
"""

from __future__ import annotations

import re
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from tagstream.table.errors import TagstreamError
from tests.pairs.case import PairCase
from tests.pairs.covering import completed
from tests.pairs.events import events_of
from tests.pairs.options import OPTIONS, refused_pairs
from tests.pairs.oracle import Oracle
from tests.pairs.outcome import Outcome, without_hint

# What the table has, whatever a start leaves unsaid of it.
_OF_TABLE = ("version", "type", "key", "layout", "generator", "hive style", "encoding", "ordering")
# Settings that are no option of a new table's cases.
OTHERS: Mapping[str, Mapping[str, str]] = {
    "another table name": {"hoodie.table.name": "others"},
    "other shuffle partitions": {"spark.sql.shuffle.partitions": "3"},
    "other key groups": {"index.key.groups": "8"},
    "other buckets": {"hoodie.bucket.index.num.buckets": "5"},
    "other groups of a record index": {"hoodie.metadata.record.index.min.filegroup.count": "3"},
    "order by commit time": {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
    "simple bloom filters": {"hoodie.bloom.index.filter.type": "SIMPLE"},
    "no loading of the index": {"index.bootstrap.enabled": "false"},
    "no upgrade": {"hoodie.write.auto.upgrade": "false"},
    "another name of the stream": {"hoodie.datasource.write.streaming.checkpoint.identifier": "other"},
}
# Refusals beside those of pairs: each names the key, or the place that fixes it, and what to do.
LINES = (
    r"table \S+ has [\w.]+=.*, but the job has .*; remove the option, or set another --target-base-path",
    r"makes partition paths of times by .*, but the job has .*; remove the keys hoodie.keygen.timebased",
    r"uses key generator \S+, but the job has \S+; with another key generator every key would be new: remove the option",
    r"fixes (index|global_index|ordering) as .*, but .* is now .*; set that value again, or start with a new checkpoint",
    r"fixes (shuffle_partitions|key_groups) as .*; set that value again, or make a checkpoint with the new value from this",
    r"fixes stream_id as .*; this checkpoint belongs to another source. Give the new source its own checkpoint",
    r"is bucket \d+, but its key .* belongs to bucket \d+ of \d+ by .*; set the hoodie.bucket.index.num.buckets",
    r"has version 6, whose readers .*: set hoodie.write.table.version=8 or 9, or use the global one",
    r"column '\w+' is .*, in the table it is .*; a column's type is only widened .*: keep the type, or use",
    r"hoodie.write.record.merge.mode = COMMIT_TIME_ORDERING .* contradicts the ordering field",
    r"rows of a DataFrame have no order, and table \S+ has no ordering field: send the records as files or to a",
)
_SEVERAL = re.compile(r"\d+ settings prevent the start of this job:")


@dataclass(frozen=True)
class Edit:
    """A table's values, and what is edited: values of options, and names of ``OTHERS``."""

    values: Mapping[str, str]
    changed: Mapping[str, str]
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people."""
        told = [f"{option}: {self.values[option]} -> {value}" for option, value in self.changed.items()]
        return f"{'; '.join([*told, *self.others])} ({', '.join(f'{k}={v}' for k, v in self.values.items())})"

    @property
    def edited(self) -> dict[str, str]:
        """The values after the edit."""
        return {**self.values, **self.changed}


def drawn_edits(seed: int, count: int) -> list[Edit]:
    """Tables whose one or two settings are edited: every option in turn, and a second one for half of them."""
    random, refused = Random(seed), refused_pairs()
    names = {name: list(values) for name, values in OPTIONS.items()}
    settings = [*(name for name in OPTIONS if name != "starts"), *OTHERS]
    random.shuffle(settings)
    edits = []
    for number in range(count):
        first = settings[number % len(settings)]
        chosen = {first, random.choice(settings)} if random.random() < 0.5 else {first}
        begun = {"index": "BUCKET"} if "other buckets" in chosen else {}
        values = completed(names, refused, begun, random)
        assert values is not None
        changed = {
            name: random.choice([value for value in OPTIONS[name] if value != values[name]])
            for name in OPTIONS
            if name in chosen
        }
        edits.append(Edit(values, changed, tuple(name for name in OTHERS if name in chosen)))
    return edits


def one_edit(spark: SparkSession, folder: Path, edit: Edit) -> Outcome:
    """A batch with the settings of before, a start with those of after, and two more batches with what was accepted."""
    case, oracle = PairCase(folder, spark, edit.values), Oracle(edit.values)
    try:
        return _edited(case, oracle, edit)
    except Exception as e:
        problem = f"{type(e).__name__}: {e}"[:2000]
        return Outcome(edit.name, case.properties(), None, (problem, traceback.format_exc()[-3000:]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _edited(case: PairCase, oracle: Oracle, edit: Edit) -> Outcome:
    _batch(case, oracle, 0)
    problems = case.problems(oracle, hudi_rs=False)
    if problems:
        return Outcome(edit.name, case.properties(), None, tuple(f"before the edit: {text}" for text in problems))
    more = {key: value for name in edit.others for key, value in OTHERS[name].items()}
    after = replace(case, values=edit.edited, more=more)
    line = None
    try:
        after.run()
    except TagstreamError as e:
        line = known_line(e, len(edit.changed) + len(edit.others))
        if line is None:
            return Outcome(edit.name, after.properties(), None, (f"refused: {type(e).__name__}: {e}",))
    if line is None:
        case = after
        oracle.case = {name: (edit.values if name in _OF_TABLE else edit.edited)[name] for name in OPTIONS}
        oracle.again()
    for number in (1, 2):
        _batch(case, oracle, number)
        problems += [f"batch {number + 1}: {text}" for text in case.problems(oracle, hudi_rs=number == 2)]
    if problems and line is not None:
        problems = [f"after the refusal {line}, with the settings of before: {problem}" for problem in problems]
    return Outcome(edit.name, case.properties(), line, tuple(problems))


def _batch(case: PairCase, oracle: Oracle, number: int) -> None:
    """One more batch, read with what the case says now, of partitions that the table makes."""
    events = events_of(oracle.case)[number]
    case.send(events, oracle.case)
    case.run()
    oracle.batch(events)


def known_line(error: TagstreamError, edits: int) -> str | None:
    """The known line of a refusal, the last of several; None when one is not known, or there are more than edits."""
    found, known = None, [*dict.fromkeys(refused_pairs().values()), *LINES]
    told = [text for text in without_hint(str(error)).splitlines() if not _SEVERAL.fullmatch(text)]
    for text in told:
        found = next((line for line in known if re.search(line, text)), None)
        if found is None:
            return None
    return found if len(told) <= edits else None
