"""The catalogues that a job writes, by the flags and keys of HoodieStreamer and of Hudi's sync tools."""

from __future__ import annotations

from collections.abc import Sequence

from tagstream.catalog.options import ENABLE_FLAGS, ENABLE_KEYS, HIVE, TOOLS_KEY, SyncOptions, tools_of
from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.options.resolve import Resolved, resolve
from tagstream.table.config import Entry
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import keys_of, names_of, read

_CLIENT_TOOL = "hoodie.meta.sync.client.tool.class"


def sync_options(r: Resolved, *, asked: bool = False) -> SyncOptions:
    """The given options; a problem for invalid values. ``asked``: a sync is wanted in any case."""
    wanted = asked or any(r.flag(name) for name in (ENABLE_FLAGS[0], *ENABLE_KEYS))
    none: tuple[str, ...] = ()
    named = r.attempt(lambda: tools_of(_tools(r)), none, TOOLS_KEY, _CLIENT_TOOL)
    also = (HIVE,) if r.flag(ENABLE_KEYS[0]) else ()
    catalogs = tuple(dict.fromkeys((*named, *also))) or (HIVE,)
    return r.attempt(
        lambda: read(SyncOptions, r, catalogs=catalogs if wanted else ()), SyncOptions(), *names_of(SyncOptions)
    )


def _tools(r: Resolved) -> tuple[str, ...]:
    """``--sync-tool-classes``, or else the key of Hudi's Spark writer."""
    return r.texts(TOOLS_KEY) or r.texts(_CLIENT_TOOL) or ()


def sync_of(entries: Sequence[Entry], *, asked: bool = True) -> SyncOptions:
    """The catalogue options in a job's properties, for a command outside of the job.

    ConfigError names each entry of the catalogue's keys that the job would also refuse.
    """
    r = resolve(REGISTRY, entries)
    keys = keys_of(SyncOptions, "Catalogues")
    problems = [each for each in r.problems if each.entry is not None and REGISTRY.find(each.entry.key) in keys]
    before = len(r.problems)
    options = sync_options(r, asked=asked)
    problems += r.problems[before:]
    if problems:
        raise ConfigError("\n".join(problem.text for problem in problems))
    return options
