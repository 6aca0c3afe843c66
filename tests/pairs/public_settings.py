"""Settings as public projects have them (``tests/fixtures/public_settings.json``), each on a new table."""

from __future__ import annotations

import json
import re
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tagstream.streaming.options.cli import load_options
from tagstream.table.errors import TagstreamError
from tests.pairs.case import PairCase, run_stream
from tests.pairs.events import events_of
from tests.pairs.options import OPTIONS
from tests.pairs.oracle import Oracle
from tests.pairs.outcome import Outcome, without_hint
from tests.support.paths import ROOT

_FILE = ROOT / "tests" / "fixtures" / "public_settings.json"
RIGHT = "right"
# A case's values where the settings say nothing else.
_PLAIN = {name: next(iter(values)) for name, values in OPTIONS.items()} | {"ordering": "one", "layout": "text"}


@dataclass(frozen=True)
class Settings:
    """``source``: where they are from. ``wanted``: right, or the line that refuses the start. ``warns``: what it says."""

    name: str
    source: str
    properties: Mapping[str, str]
    wanted: str
    values: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    warns: str | None = None


def public_settings() -> list[Settings]:
    """All of them."""
    found: list[dict[str, Any]] = json.loads(_FILE.read_text("utf-8"))["cases"]
    return [Settings(**{**each, "flags": tuple(each.get("flags", ()))}) for each in found]


def one_public(spark: SparkSession, folder: Path, settings: Settings) -> Outcome:
    """A new table of these settings, and three batches. A catalogue that they name is not there: its errors are ignored."""
    values = {**_PLAIN, **settings.values}
    own = {"hoodie.datasource.hive_sync.ignore_exceptions": "true"} if "--enable-hive-sync" in settings.flags else {}
    case = PairCase(folder, spark, values, own={**settings.properties, **own}, flags=settings.flags)
    oracle = Oracle(values)
    name = f"{settings.name} ({settings.source})"
    try:
        folder.mkdir(parents=True)
        for other, text in settings.files.items():
            (folder / other).write_text(text, "utf-8")
        for batch in events_of(values):
            case.send(batch)
            oracle.batch(batch)
        options = load_options(case.arguments())
        problems = []
        if settings.warns is not None and not any(re.search(settings.warns, text) for text in options.warnings):
            problems.append(f"does not say {settings.warns}, but {options.warnings}")
        run_stream(spark, options)
        if settings.wanted != RIGHT:
            problems.append(f"started, and must say {settings.wanted}")
        else:
            problems += case.problems(oracle, hudi_rs=True)
        return Outcome(name, case.properties(), None, tuple(problems))
    except TagstreamError as e:
        text = without_hint(str(e))
        known = settings.wanted != RIGHT and re.search(settings.wanted, text) is not None and "\n" not in text
        line, problems = (settings.wanted, []) if known else (None, [f"refused: {type(e).__name__}: {e}"])
        return Outcome(name, case.properties(), line, tuple(problems))
    except Exception as e:
        return Outcome(
            name, case.properties(), None, (f"{type(e).__name__}: {e}"[:2000], traceback.format_exc()[-3000:])
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
