"""Options of a Hudi table as the source (HoodieStreamer's HoodieIncrSource)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.option_fields import derived, option, read
from tagstream.table.storage.opening import canonical, is_supported

INCR_CLASS = "HoodieIncrSource"
PATH = "hoodie.streamer.source.hoodieincr.path"
MISSING = "hoodie.streamer.source.hoodieincr.missing.checkpoint.strategy"
READ_LATEST = "hoodie.streamer.source.hoodieincr.read_latest_on_missing_ckpt"
FULL_SCAN = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
Begin = Literal["READ_UPTO_LATEST_COMMIT", "READ_LATEST"]


@dataclass(frozen=True, kw_only=True)
class IncrOptions:
    """``path``: of the source table, absolute or a URL. ``begin``: where a new checkpoint begins. ``full_scan``: the
    whole table is read where its history is gone."""

    path: str | None = option(
        PATH,
        Kind.PATH,
        "Path of the Hudi table that is the source.",
        default_note="required with HoodieIncrSource",
    )
    instants: int = option(
        "hoodie.streamer.source.hoodieincr.num_instants",
        Kind.INT,
        "HoodieIncrSource: most commits of the source table that a batch reads. `--source-limit` limits their bytes; a "
        "batch has at least one whole commit.",
        default=5,
        minimum=1,
    )
    begin: Begin = derived(
        ConfigKey(
            MISSING,
            Kind.CHOICE,
            "HoodieIncrSource: where a new checkpoint begins. `READ_UPTO_LATEST_COMMIT` reads the rows that the source "
            "table has, then its commits. `READ_LATEST` begins with its newest commit. HoodieStreamer has no default "
            "and asks for a value.",
            default="READ_UPTO_LATEST_COMMIT",
            values={name: name for name in ("READ_UPTO_LATEST_COMMIT", "READ_LATEST")},
        ),
        ConfigKey(
            READ_LATEST,
            Kind.BOOL,
            f"HoodieIncrSource: with true the same as `READ_LATEST` in `{MISSING}`.",
            default=False,
        ),
        default="READ_UPTO_LATEST_COMMIT",
    )
    full_scan: bool = option(
        FULL_SCAN,
        Kind.BOOL,
        "HoodieIncrSource: where commits that are needed were archived, or their files cleaned, read all rows of the "
        "source table instead of ending with an error. Rows that the source table has lost meanwhile stay in the "
        "target. Hudi's default is true from table version 8 on; with false no delete is lost silently.",
        default=False,
    )


def incr_options(r: Resolved, class_name: str) -> IncrOptions:
    """The options of the Hudi table as the source; problems are noted in ``r``."""
    given = r.opt_text(PATH)
    path = None if given is None else canonical(given)
    if class_name != INCR_CLASS:
        return read(IncrOptions, r, path=path)
    if path is not None and not is_supported(path):
        text = f"{r.said(PATH)}: this program does not read tables on this storage; name another table"
        r.problems.append(Problem(text, r.entries.get(PATH)))
    begin = r.text(MISSING)
    if r.flag(READ_LATEST):
        if MISSING in r.values and begin != "READ_LATEST":
            text = f"{r.said(READ_LATEST)} contradicts {r.said(MISSING)}; remove one of the two"
            r.problems.append(Problem(text, r.entries.get(READ_LATEST)))
        begin = "READ_LATEST"
    return read(IncrOptions, r, path=path, begin=begin)
