"""Whether the key generator that a job would write with makes the keys and partition paths that the table's rows have.

Another one doubles every key, or moves rows beside their partition: Hudi's key generators, their flags and Spark SQL make
different paths of the same values, and the table's properties do not always say which. A few stored rows do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError, TableConfigMismatchError
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.keys.time_partition import PREFIX
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.stored_paths import StoredRows, stored_rows
from tagstream.table.schema.schema import PARTITION_PATH, RECORD_KEY

KEY, PATH = "record key", "partition path"
CHECK_STORED = "tagstream.check.stored.keys"
_ZONES = (
    "UTC",
    "Asia/Shanghai",
    "Asia/Kolkata",
    "America/New_York",
    "America/Los_Angeles",
    "Europe/Berlin",
    "Europe/London",
)


@dataclass(frozen=True)
class Difference:
    """A stored row whose key or path the generator does not make. ``what``: which of the two."""

    what: str
    stored: str
    made: str | None
    at: StoredRows


def fitting_generator(table: HoodieTable, generator: KeyGenerator, *, moves: bool = True) -> KeyGenerator:
    """The generator with timestamps in partition paths in the form that the table's rows have.

    ``moves``: a row whose partition field changes moves to its new partition. Where it does not, a row's path may be another
    one than its fields make, and tells little by itself.
    TableConfigMismatchError where it makes other keys than the rows have, or none of their paths, with what would.
    """
    fields = (*generator.record_key_fields, *generator.partition_fields)
    samples = [found for found in stored_rows(table, fields) if _can_be_made(generator, found)]
    if next(differences(generator, samples), None) is None:
        return generator
    wrong, best = min(
        ((list(differences(form, samples)), form) for form in (generator, *_forms(generator))), key=lambda f: len(f[0])
    )
    if not wrong:
        return best
    hint = _hint(generator, samples, len(wrong), moves)
    # Rows that an earlier writer left in their partition explain single files; a wrong generator fits none.
    by_path = all(difference.what == PATH for difference in wrong)
    if hint is None and by_path and (not moves or len(wrong) < len(samples)):
        return best
    first = next((d for d in wrong if d.what == KEY), wrong[0])
    name = f"table {table.config.name} at {table.base_path}"
    raise TableConfigMismatchError(
        f"{name}: the {generator.kind.value} key generator makes {_shown(first.made)} of the {first.what} "
        f"{_shown(first.stored)} of a row in {first.at.path}, so this job would write the row a second time, or beside its "
        f"partition; {hint or 'its writer had another key generator, or other flags of it'}. {CHECK_STORED}=false starts in "
        "spite of it"
    )


def _hint(generator: KeyGenerator, samples: Sequence[StoredRows], wrong: int, moves: bool) -> str | None:
    """What the generator that fits more files would need; a time zone has to fit all, and says nothing of rows that stay."""
    counts = [(len(list(differences(form, samples))), text) for form, text in _flags(generator)]
    if moves:
        counts += [(0, text) for form, text in _zones(generator) if next(differences(form, samples), None) is None]
    least, text = min(counts, key=lambda found: found[0])
    return text if least < wrong else None


def _can_be_made(generator: KeyGenerator, found: StoredRows) -> bool:
    """False where a column has not the type that the generator takes: that is said elsewhere."""
    try:
        generator.check(found.rows.schema, digits=True)
    except ConfigError:
        return False
    return True


def differences(generator: KeyGenerator, samples: Iterable[StoredRows]) -> Iterator[Difference]:
    """One for each file that none of its rows fits: an index over all partitions may keep a row where it was."""
    for found in samples:
        rows = found.rows
        pairs = (
            (KEY, rows.column(RECORD_KEY), generator.record_keys(rows)),
            (PATH, rows.column(PARTITION_PATH), generator.partition_paths(rows)),
        )
        for what, stored, made in pairs:
            stored = pc.cast(stored.combine_chunks(), pa.string())
            if not pc.any(pc.fill_null(pc.equal(stored, made), False)).as_py():
                yield Difference(what, stored[0].as_py(), made[0].as_py(), found)


def _forms(generator: KeyGenerator) -> Sequence[KeyGenerator]:
    """The same generator, as Hudi has it elsewhere without saying so in the table's properties."""
    return (
        replace(generator, sql_times=True),
        replace(generator, consistent_timestamps=True),
        replace(generator, sql_times=True, consistent_timestamps=True),
    )


def _flags(generator: KeyGenerator) -> Iterator[tuple[KeyGenerator, str]]:
    """Generators with another flag, and what to do where their paths are the table's."""
    properties = "correct hoodie.properties of the table"
    for hive in (generator.hive_style, not generator.hive_style):
        for encoded in (generator.url_encode, not generator.url_encode):
            flags = (
                f"hoodie.datasource.write.hive_style_partitioning={str(hive).lower()} and "
                f"hoodie.datasource.write.partitionpath.urlencode={str(encoded).lower()}"
            )
            for sql in (False, True):
                yield (
                    replace(generator, hive_style=hive, url_encode=encoded, sql_times=sql),
                    f"its rows were written with {flags}: {properties}",
                )
    yield (
        replace(generator, name_single_key=not generator.name_single_key),
        "its keys have the other form of a single field",
    )


def _zones(generator: KeyGenerator) -> Iterator[tuple[KeyGenerator, str]]:
    """The generator in other time zones, and what to do where its paths are the table's."""
    times = generator.times
    for zone in _ZONES if times is not None else ():
        yield (
            replace(generator, times=times and replace(times, output_zone=zone)),
            f"its paths are in another time zone, such as {zone}: say so with {PREFIX}timezone",
        )


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(text[:200])
