"""The machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib.metadata import version
from typing import Any

import psutil

from bench.peers import home

_PACKAGES = ("pyspark", "pyarrow", "rocksdict", "numpy", "hudi")


def machine_line() -> dict[str, Any]:
    """A line with the machine and the versions of a measurement."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    java = re.search(r'version "([^"]+)"', said)
    versions = {name: version(name) for name in _PACKAGES}
    peers = {"peer pyspark": home.PYSPARK.partition("==")[2], "peer Hudi on Spark": home.HUDI_VERSIONS[-1]}
    peers |= {"peer Flink": home.HUDI_ON_FLINK.flink, "peer Hudi on Flink": home.HUDI_ON_FLINK.version}
    peers |= {"peer Flink of Paimon": home.PAIMON.flink, "peer Paimon": home.PAIMON.version}
    peers |= {"peer delta-rs": home.DELTA.partition("==")[2]}
    return {
        "kind": "machine",
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "java": java.group(1) if java else None,
        "versions": versions | peers,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
