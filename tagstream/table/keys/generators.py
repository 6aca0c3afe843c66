"""Hudi's key generators: one table of their types, classes, and the fields that each takes.

The types are the values of ``hoodie.table.keygenerator.type`` (version 8 and later), the classes those of
``hoodie.table.keygenerator.class``. Classes with ``Avro`` in their names are the ones under Hudi's Java and Flink
writers; they make the same keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

KEYGEN_PACKAGE: Final = "org.apache.hudi.keygen."
_SUFFIX = "KeyGenerator"


class KeyKind(StrEnum):
    """Kinds of key generators, by the values of ``hoodie.table.keygenerator.type``."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"


class Times(Enum):
    """Which partition fields become paths as times: none, all, or those of the kind TIMESTAMP."""

    NONE = "none"
    ALL = "all"
    BY_KIND = "by kind"


@dataclass(frozen=True)
class GeneratorFacts:
    """What is fixed about a key generator. ``name``: of its class, without the package.

    ``one_field``: it takes one key field and one partition field. ``partitions``: whether there are partition fields; None
    where there may be. ``times``: which of them become paths as times. ``path_has_values``: the folders of a partition path
    are the values of the partition fields.
    """

    kind: KeyKind
    name: str
    one_field: bool = False
    partitions: bool | None = True
    times: Times = Times.NONE
    path_has_values: bool = False

    @property
    def class_name(self) -> str:
        """The class with its package, as it is written to the properties of a table."""
        return KEYGEN_PACKAGE + self.name

    @property
    def avro_name(self) -> str:
        """The name of its Avro class, without the package."""
        return f"{self.name.removesuffix(_SUFFIX)}Avro{_SUFFIX}"


GENERATORS: Final = {
    facts.kind: facts
    for facts in (
        GeneratorFacts(KeyKind.SIMPLE, "SimpleKeyGenerator", one_field=True, path_has_values=True),
        GeneratorFacts(KeyKind.COMPLEX, "ComplexKeyGenerator", path_has_values=True),
        GeneratorFacts(KeyKind.NON_PARTITION, "NonpartitionedKeyGenerator", partitions=False),
        GeneratorFacts(KeyKind.TIMESTAMP, "TimestampBasedKeyGenerator", one_field=True, times=Times.ALL),
        GeneratorFacts(KeyKind.CUSTOM, "CustomKeyGenerator", partitions=None, times=Times.BY_KIND),
    )
}
# A type that Hudi gives to its class, and no generator of this project.
_OTHER_TYPES: Final = {"GLOBAL_DELETE": "GlobalDeleteKeyGenerator"}
REFUSED_TYPES: Final = ("GLOBAL_DELETE", "GLOBAL_DELETE_AVRO")
REFUSED_CLASSES: Final = (
    "GlobalDeleteKeyGenerator", "GlobalAvroDeleteKeyGenerator", "AutoRecordGenWrapperKeyGenerator",
    "AutoRecordGenWrapperAvroKeyGenerator",
)  # fmt: skip


def generator_of(class_name: str) -> GeneratorFacts | None:
    """The generator of a class, with or without the package; None for one that this project does not have."""
    name = _simple_name(class_name)
    return next((facts for facts in GENERATORS.values() if facts.name == name), None)


def default_generator(key_fields: Sequence[str], partition_fields: Sequence[str]) -> GeneratorFacts:
    """Hudi's own choice from the number of key and partition fields."""
    if not partition_fields:
        return GENERATORS[KeyKind.NON_PARTITION]
    return GENERATORS[KeyKind.SIMPLE if len(key_fields) == len(partition_fields) == 1 else KeyKind.COMPLEX]


def key_generator_type(class_name: str) -> str:
    """The type by which version 8 and later name a key generator; its class where it has none."""
    name, facts = _simple_name(class_name), generator_of(class_name)
    if facts is not None:
        return facts.kind.value
    return next((kind for kind, known in _OTHER_TYPES.items() if known == name), class_name)


def class_of(kind: str) -> str | None:
    """The class of a type, with its package; None for a type that Hudi does not have."""
    if kind in _OTHER_TYPES:
        return KEYGEN_PACKAGE + _OTHER_TYPES[kind]
    return GENERATORS[KeyKind(kind)].class_name if kind in GENERATORS else None


def type_spellings() -> dict[str, str]:
    """Accepted spellings of a type, to the type."""
    plain = {kind.value: kind.value for kind in GENERATORS}
    return plain | {f"{kind}_AVRO": kind for kind in plain}


def class_spellings() -> dict[str, str]:
    """Accepted spellings of a class in upper case, with and without the package, to the type."""
    return {
        f"{package}{name}".upper(): facts.kind.value
        for package in ("", KEYGEN_PACKAGE)
        for facts in GENERATORS.values()
        for name in (facts.name, facts.avro_name)
    }


def _simple_name(class_name: str) -> str:
    return class_name.rpartition(".")[2].replace(f"Avro{_SUFFIX}", _SUFFIX)
