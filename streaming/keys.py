"""The one table of the job's keys: names, types, defaults, documentation, and what this version refuses.

``python -m tagstream.streaming.keys_docs`` writes docs/configuration.md from it, ``streaming/cli.py`` the help, and
``streaming/options.py`` the checks.
"""

from __future__ import annotations

from tagstream.streaming.keys_hbase import HBASE_KEYS
from tagstream.streaming.keys_index import INDEX_KEYS
from tagstream.streaming.keys_pull import PULL_KEYS
from tagstream.streaming.keys_refused import FAMILIES, IGNORED_KEYS, REFUSED_KEYS
from tagstream.streaming.keys_source import JOB_KEYS, SOURCE_KEYS
from tagstream.streaming.keys_table import TABLE_KEYS
from tagstream.streaming.keys_write import WRITE_KEYS
from tagstream.table.config import Registry

REGISTRY = Registry(
    (
        *JOB_KEYS,
        *TABLE_KEYS,
        *SOURCE_KEYS,
        *INDEX_KEYS,
        *PULL_KEYS,
        *HBASE_KEYS,
        *WRITE_KEYS,
        *IGNORED_KEYS,
        *REFUSED_KEYS,
    ),
    FAMILIES,
)
