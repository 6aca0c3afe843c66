"""The one table of the job's keys: names, types, defaults, documentation, and what this version refuses.

``python -m tagstream.streaming.options.keys.docs`` writes docs/configuration.md from it, ``streaming/options/cli.py`` the
help, and ``streaming/options/options.py`` the checks.
"""

from __future__ import annotations

from tagstream.streaming.options.keys.beside import BESIDE_FAMILIES, BESIDE_KEYS
from tagstream.streaming.options.keys.decode import DECODE_KEYS, FORMAT_KEYS, SCHEMA_KEYS
from tagstream.streaming.options.keys.ignored import IGNORED_FAMILIES, IGNORED_KEYS
from tagstream.streaming.options.keys.index import INDEX_KEYS
from tagstream.streaming.options.keys.job import JOB_KEYS
from tagstream.streaming.options.keys.metadata import METADATA_KEYS
from tagstream.streaming.options.keys.partition_times import PARTITION_TIME_KEYS
from tagstream.streaming.options.keys.pull import HBASE_KEYS, PULL_KEYS
from tagstream.streaming.options.keys.refused import HUDI_REFUSED, REFUSED_FAMILIES, REFUSED_KEYS
from tagstream.streaming.options.keys.services.cleaning import ARCHIVING_KEYS, CLEANING_KEYS
from tagstream.streaming.options.keys.services.clustering import CLUSTERING_KEYS
from tagstream.streaming.options.keys.services.compaction import COMPACTION_KEYS
from tagstream.streaming.options.keys.source import SOURCE_KEYS, TRANSFORM_KEYS
from tagstream.streaming.options.keys.table import TABLE_KEYS
from tagstream.streaming.options.keys.write import TABLES_KEYS, WRITE_KEYS
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
