"""Spark's log settings, where the project is a zip too."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tagstream.streaming.job.failure import url_of


def test_a_file_in_a_zip_has_a_url_that_java_reads(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tag stream.zip", "w") as packed:
        packed.writestr("tagstream/conf/log4j2.properties", "")
    folder = f"file://{tmp_path}"
    assert url_of(tmp_path / "log4j2.properties") == f"{folder}/log4j2.properties"
    inside = tmp_path / "tag stream.zip" / "tagstream" / "conf" / "log4j2.properties"
    assert url_of(inside) == f"jar:{folder}/tag%20stream.zip!/tagstream/conf/log4j2.properties"
