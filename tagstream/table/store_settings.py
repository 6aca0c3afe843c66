"""The settings of file systems: one place for Spark's and for the Python clients', under Hadoop's own names.

The command line keeps what the properties and Spark's settings say (``fs.s3a.endpoint``, ``dfs.replication``, ... without
``spark.hadoop.``) in one variable of the process's environment, and gives the same to Spark's workers as theirs. So keys
and tokens stand in no file, no pickle and no log: a storage is sent as its URL and the settings that are no secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping

VARIABLE = "TAGSTREAM_STORE_SETTINGS"
_SPARK = "spark.hadoop."
_OURS = ("fs.", "dfs.", "hadoop.security.", "google.cloud.auth.")


def store_settings(spark_conf: Mapping[str, str]) -> dict[str, str]:
    """What Spark's settings say of file systems, by Hadoop's names."""
    found = {name.removeprefix(_SPARK): value for name, value in spark_conf.items() if name.startswith(_SPARK)}
    return {name: value for name, value in found.items() if name.startswith(_OURS)}


def keep_settings(settings: Mapping[str, str], env: MutableMapping[str, str]) -> None:
    """Make these the settings of every storage that this process opens, and of those it starts."""
    if settings:
        env[VARIABLE] = json.dumps(dict(settings))
    else:
        env.pop(VARIABLE, None)


def kept_settings(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of this process; empty where nothing was given: then the environment's own variables are all there is."""
    text = (os.environ if env is None else env).get(VARIABLE)
    found: dict[str, str] = json.loads(text) if text else {}
    return found
