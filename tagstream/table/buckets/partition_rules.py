"""Numbers of buckets by partition, for the simple engine of the bucket index (Hudi 1.1 and later).

``hoodie.bucket.index.partition.expressions`` is ``regex,number;regex,number``. The first regex that is found anywhere
in the partition path decides, else ``hoodie.bucket.index.num.buckets`` (``RegexRuleEngine`` of Hudi 1.2.0). A rule is cut
at its comma, so a regex cannot have one.

The rules are options of each writer, as the number of buckets is. Hudi's procedure ``partition_bucket_index_manager``
also keeps them in the table: ``.hoodie/.bucket_index/partition_bucket_index_meta/configs/<T>.hashing_config``. The newest
file counts whose ``T`` is not a pending replace commit (``PartitionBucketIndexHashingConfig`` of 1.2.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tagstream.table.buckets.hashing_metadata import BUCKET_INDEX, read_members
from tagstream.table.errors import ConfigError, CorruptFileError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.timeline import Timeline

RULES_FOLDER: Final = f"{BUCKET_INDEX}/partition_bucket_index_meta/configs"
EXPRESSIONS: Final = "hoodie.bucket.index.partition.expressions"
_NAME = re.compile(r"(\d{14,17})\.hashing_config")
_MOST = 99_999_999  # a file id has eight digits


@dataclass(frozen=True)
class BucketRules:
    """``rules``: a regex and its number of buckets, in order. ``default``: the number of all other partitions."""

    rules: tuple[tuple[str, int], ...]
    default: int

    @staticmethod
    def parse(expressions: str, default: int) -> BucketRules:
        """The rules of a text; ConfigError for a rule that is not one, or a number that no partition can have."""
        rules = []
        for part in (part.strip() for part in expressions.split(";")):
            if not part:
                continue
            regex, _, number = part.partition(",")
            if "," in number or not number.strip().isdecimal() or not 1 <= int(number) <= _MOST:
                raise ConfigError(
                    f"{EXPRESSIONS}: {part!r} is not a regular expression, one comma and a number of buckets from 1 to "
                    f"{_MOST:,}; an expression with a comma is not possible"
                )
            try:
                re.compile(regex)
            except re.error as error:
                raise ConfigError(f"{EXPRESSIONS}: {regex!r} is not a regular expression: {error}") from None
            rules.append((regex, int(number)))
        return BucketRules(tuple(rules), default)

    def buckets(self, partition: str) -> int:
        """The number of buckets of a partition."""
        return next((number for regex, number in self.rules if re.search(regex, partition)), self.default)

    def counts(self, partitions: Sequence[str]) -> npt.NDArray[np.int64]:
        """The numbers of buckets of several partitions."""
        return np.array([self.buckets(partition) for partition in partitions], np.int64)


def rules_of_table(table: HoodieTable, timeline: Timeline) -> BucketRules | None:
    """The rules that the table keeps; None where it keeps none.

    CorruptFileError for a file that is not Hudi's; UnsupportedTableError for rules of another kind.
    """
    pending = {i.time for i in timeline.pending}
    names = sorted(table.storage.names(RULES_FOLDER), reverse=True)
    found = (match for match in map(_NAME.fullmatch, names) if match is not None)
    newest = next((match.string for match in found if match.group(1) not in pending), None)
    if newest is None:
        return None
    rel = f"{RULES_FOLDER}/{newest}"
    where, config = table.storage.where(rel), read_members(table, rel, "a hashing config")
    if config.get("rule") != "regex" or config.get("version") != 1:
        raise UnsupportedTableError(
            f"{where} has rules of kind {config.get('rule')!r} in version {config.get('version')!r}; only regex in version "
            "1 is known: write the table with Hudi"
        )
    expressions, default = config.get("expressions"), config.get("defaultBucketNumber")
    if not isinstance(expressions, str) or not isinstance(default, int) or not 1 <= default <= _MOST:
        raise CorruptFileError(f"{where} has no expressions or no usable default number of buckets: restore the file")
    try:
        return BucketRules.parse(expressions, default)
    except ConfigError as error:
        raise CorruptFileError(f"{where}: {error}; restore the file") from None


def rules_for(table: HoodieTable, timeline: Timeline, asked: BucketRules) -> BucketRules:
    """The rules for a writer of a table: those that the table keeps, else ``asked``.

    TableConfigMismatchError when the table keeps other ones than the options name. Options without rules take the
    table's.
    """
    kept = rules_of_table(table, timeline)
    if kept is None:
        return asked
    if kept.default != asked.default or (asked.rules and asked.rules != kept.rules):
        shown = ";".join(f"{regex},{number}" for regex, number in kept.rules)
        raise TableConfigMismatchError(
            f"table {table.config.name} at {table.base_path} keeps its numbers of buckets in {RULES_FOLDER}, and the "
            f"options differ: set hoodie.bucket.index.num.buckets={kept.default}, and {EXPRESSIONS}={shown} or none"
        )
    return kept
