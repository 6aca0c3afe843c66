"""The table of key generators: what Hudi calls each, and which one follows from the fields."""

from __future__ import annotations

import pytest

from tagstream.table.keys.generators import (
    GENERATORS,
    KeyKind,
    class_of,
    class_spellings,
    default_generator,
    generator_of,
    key_generator_type,
    type_spellings,
)

PACKAGE = "org.apache.hudi.keygen."
CLASSES = {
    KeyKind.SIMPLE: ("SimpleKeyGenerator", "SimpleAvroKeyGenerator"),
    KeyKind.COMPLEX: ("ComplexKeyGenerator", "ComplexAvroKeyGenerator"),
    KeyKind.NON_PARTITION: ("NonpartitionedKeyGenerator", "NonpartitionedAvroKeyGenerator"),
    KeyKind.TIMESTAMP: ("TimestampBasedKeyGenerator", "TimestampBasedAvroKeyGenerator"),
    KeyKind.CUSTOM: ("CustomKeyGenerator", "CustomAvroKeyGenerator"),
}


@pytest.mark.parametrize("kind", KeyKind)
def test_the_names_of_each(kind: KeyKind) -> None:
    facts = GENERATORS[kind]
    assert (facts.name, facts.avro_name) == CLASSES[kind]
    assert class_of(kind.value) == facts.class_name == PACKAGE + facts.name
    for name in CLASSES[kind]:
        assert generator_of(name) is generator_of(PACKAGE + name) is facts
        assert key_generator_type(PACKAGE + name) == kind.value
        assert class_spellings()[name.upper()] == class_spellings()[(PACKAGE + name).upper()] == kind.value
    assert type_spellings()[kind.value] == type_spellings()[f"{kind.value}_AVRO"] == kind.value


def test_names_that_are_not_of_this_table() -> None:
    deletes = PACKAGE + "GlobalDeleteKeyGenerator"
    assert (class_of("GLOBAL_DELETE"), key_generator_type(deletes)) == (deletes, "GLOBAL_DELETE")
    assert (generator_of(deletes), generator_of("com.example.OwnKeyGenerator"), class_of("OWN")) == (None, None, None)
    assert key_generator_type("com.example.OwnKeyGenerator") == "com.example.OwnKeyGenerator"


@pytest.mark.parametrize(
    ("keys", "partitions", "kind"),
    [
        ("a", "", "NON_PARTITION"),
        ("ab", "", "NON_PARTITION"),
        ("a", "p", "SIMPLE"),
        ("ab", "p", "COMPLEX"),
        ("a", "pq", "COMPLEX"),
    ],
)
def test_the_choice_by_fields(keys: str, partitions: str, kind: str) -> None:
    assert default_generator(tuple(keys), tuple(partitions)).kind == kind
