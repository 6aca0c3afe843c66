"""The one table of the job's keys: names, types, defaults, documentation, and what this version refuses.

``python -m tagstream.streaming.options.keys.docs`` writes docs/reference/configuration.md from it,
``streaming/options/cli.py`` the help, and ``streaming/options/options.py`` the checks.
"""

from __future__ import annotations

from tagstream.streaming.options.keys.clustering import CLUSTERING_KEYS
from tagstream.streaming.options.keys.decode import DECODE_KEYS, FORMAT_KEYS, SCHEMA_KEYS
from tagstream.streaming.options.keys.index import HBASE_KEYS, INDEX_KEYS, PULL_KEYS
from tagstream.streaming.options.keys.job import JOB_KEYS
from tagstream.streaming.options.keys.source import SOURCE_KEYS, TRANSFORM_KEYS
from tagstream.streaming.options.keys.table import PARTITION_TIME_KEYS, TABLE_KEYS
from tagstream.streaming.options.keys.table_services import ARCHIVING_KEYS, CLEANING_KEYS, COMPACTION_KEYS
from tagstream.streaming.options.keys.unsupported import (
    BESIDE_FAMILIES,
    BESIDE_KEYS,
    HUDI_REFUSED,
    IGNORED_FAMILIES,
    IGNORED_KEYS,
    REFUSED_FAMILIES,
    REFUSED_KEYS,
)
from tagstream.streaming.options.keys.write import METADATA_KEYS, TABLES_KEYS, WRITE_KEYS
from tagstream.table.config import Registry

REGISTRY = Registry(
    (
        *JOB_KEYS,
        *TABLES_KEYS,
        *TABLE_KEYS,
        *PARTITION_TIME_KEYS,
        *SOURCE_KEYS,
        *FORMAT_KEYS,
        *SCHEMA_KEYS,
        *DECODE_KEYS,
        *TRANSFORM_KEYS,
        *INDEX_KEYS,
        *PULL_KEYS,
        *HBASE_KEYS,
        *WRITE_KEYS,
        *METADATA_KEYS,
        *COMPACTION_KEYS,
        *CLUSTERING_KEYS,
        *CLEANING_KEYS,
        *ARCHIVING_KEYS,
        *IGNORED_KEYS,
        *BESIDE_KEYS,
        *REFUSED_KEYS,
        *HUDI_REFUSED,
    ),
    (*IGNORED_FAMILIES, *BESIDE_FAMILIES, *REFUSED_FAMILIES),
)
