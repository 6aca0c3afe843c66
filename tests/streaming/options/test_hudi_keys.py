"""Every key of Hudi's own is one that this job acts on, one that contradicts it, or one without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.keys.unsupported import HUDI_REFUSED
from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.options.resolve import hudi_keys, resolve, without_effect
from tagstream.table.config import FROM_FILE, Entry
from tagstream.table.errors import ConfigError
from tests.streaming.options.test_brought import PATHS, given, load


def test_no_key_of_hudi_s_is_unknown() -> None:
    assert len(hudi_keys()) > 800
    entries = [Entry(key, "x", f"file:{n}", FROM_FILE) for n, key in enumerate(hudi_keys())]
    found = resolve(REGISTRY, entries)
    assert found.unknown == []
    assert set(found.kafka) & hudi_keys().keys() == set()
    assert all(set(releases.split(", ")) <= {"0.15.0", "1.2.0", "0.14.0 on Flink"} for releases in hudi_keys().values())


@pytest.mark.parametrize("key", HUDI_REFUSED, ids=lambda key: key.name)
def test_what_would_change_rows_or_files_is_named(key: object, tmp_path: Path) -> None:
    """With a harmless value the start goes on, with another one it is refused, or told."""
    name, harmless = key.name, key.harmless  # type: ignore[attr-defined]
    for value in harmless:
        assert not any(name in warning for warning in load(given(tmp_path, f"{name}={value}")).warnings)
    props = given(tmp_path, f"{name}=something")
    try:
        assert any(name in warning for warning in load(props).warnings)
    except ConfigError as e:
        assert name in str(e) and key.reason in str(e)  # type: ignore[attr-defined]


def test_a_key_without_effect_is_said_so_and_a_wrong_one_has_a_hint(tmp_path: Path) -> None:
    props = given(tmp_path, "hoodie.hfile.block.size=1", "write.tasks=4", "hoodie.hfile.blok.size=1")
    (told,) = load_options([*PATHS, "--props", str(props)]).warnings
    assert "known to Hudi, and not used here" in told
    assert "hoodie.hfile.block.size = 1" in told and "write.tasks = 4" in told
    assert "hoodie.hfile.blok.size = 1" in told and "did you mean hoodie.hfile.block.size?" in told
    assert without_effect("hoodie.hfile.blok.size") is None
