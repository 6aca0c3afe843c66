"""Histories of schema changes against an oracle that knows nothing of Arrow: sets of values that a column must hold."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import SchemaRefusedError
from tagstream.table.schema.conform import conform, is_judged, to_double, widened
from tagstream.table.schema.evolve import EvolutionRules, evolve

# A type by name: its family, its rank in it, and values that only this rank of the family can hold.
KINDS = {
    "int": (pa.int32(), "whole", 0, 7), "long": (pa.int64(), "whole", 1, 2**40),
    "float": (pa.float32(), "real", 0, 0.5), "double": (pa.float64(), "real", 1, 0.1234567890123),
    "dec8": (pa.decimal128(8, 2), "decimal", 0, Decimal("999999.99")),
    "dec14": (pa.decimal128(14, 2), "decimal", 1, Decimal("999999999999.99")),
    "text": (pa.string(), "text", 0, "x"), "flag": (pa.bool_(), "flag", 0, True),
    "day": (pa.date32(), "day", 0, 3),
}  # fmt: skip
NAMES = ("a", "b", "c", "d")
schemas = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(sorted(KINDS)), st.booleans()),
    min_size=1, max_size=4, unique_by=lambda f: f[0],
)  # fmt: skip
Fields = list[tuple[str, str, bool]]


def arrow(fields: Fields) -> pa.Schema:
    return pa.schema([pa.field(name, KINDS[kind][0], nullable=nullable) for name, kind, nullable in fields])


def oracle(table: dict[str, tuple[str, bool]], incoming: Fields, role: str | None) -> dict[str, tuple[str, bool]] | str:
    """The table's columns after, or why not. Dictionaries of (kind, nullable), in the order of the columns."""
    out = dict(table)
    come = {name: (kind, nullable) for name, kind, nullable in incoming}
    for name, (kind, nullable) in table.items():
        if name not in come:
            if name == role:
                return name
            out[name] = (kind, True)
            continue
        other, may = come[name]
        family, rank = KINDS[kind][1:3]
        exact = (kind, other) == ("double", "int")
        if KINDS[other][1] != family and not exact:
            return name
        wider = other if not exact and KINDS[other][2] > rank else kind
        if name == role and wider != kind:
            return name
        out[name] = (wider, nullable or (may and name != role) or (may and wider != kind))
    for name, (kind, _) in come.items():
        if name not in table:
            out[name] = (kind, True)
    return out


@given(schemas, st.lists(schemas, max_size=8), st.booleans())
def test_histories(first: Fields, changes: list[Fields], with_role: bool) -> None:
    role = first[0][0] if with_role else None
    rules = EvolutionRules(roles={role: "record key"} if role else {})
    own = arrow(first)
    model = {name: (kind, nullable) for name, kind, nullable in first}
    for fields in changes:
        expected = oracle(model, fields, role)
        if isinstance(expected, str):
            with pytest.raises(SchemaRefusedError):
                evolve(own, arrow(fields), rules, "next")
            continue  # the table stays as it was: the next change is judged against it
        made = evolve(own, arrow(fields), rules, "next")
        assert made.schema == arrow([(n, k, may) for n, (k, may) in expected.items()])
        assert bool(made.changes) == (made.schema != own)
        assert made.schema.names[: len(own)] == own.names, "columns are added behind the others"
        again = evolve(made.schema, arrow(fields), rules, "next")
        assert not again.changes, "what is taken up is no news"
        for name, kind, _ in fields:  # every value of the incoming type and of the old one is held
            kinds = [kind, *([model[name][0]] if name in model else [])]
            for known in kinds:
                value = pa.array([KINDS[known][3]], KINDS[known][0])
                held = conform(pa.table({name: value}), pa.schema([made.schema.field(name)]), "a file")
                assert held.column(0)[0].as_py() == value[0].as_py() or known == "float"
        own, model = made.schema, expected


def test_the_order_of_widenings_does_not_matter() -> None:
    for kinds in (("int", "long"), ("float", "double"), ("dec8", "dec14")):
        own, wide = (KINDS[k][0] for k in kinds)
        assert widened(own, wide) == wide
        assert widened(wide, own) == wide


FIELD = [("k", pa.string()), ("v", pa.int64()), ("p", pa.string())]
OWN = pa.schema([pa.field(n, t, nullable=n == "v") for n, t in FIELD])
ROLES = {"k": "record key", "p": "partition path"}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (pa.field("v", pa.int32()), "column 'v' is int, in the table it is long; a column's type is only widened"),
        (pa.field("v", pa.string()), "column 'v' is string, in the table it is long"),
        (
            pa.field("k", pa.int64()),
            "column 'k' is long, in the table it is string; it is the table's record key field",
        ),
        (pa.field("p", pa.date32()), "it is the table's partition path field, whose type never changes"),
        (pa.field("V", pa.int64()), "differs from the table's 'v' only in case"),
        (
            pa.field("new", pa.list_(pa.struct([pa.field("w", pa.int64()), pa.field("W", pa.int64())]))),
            r"has the fields 'new\.item\.w' and 'new\.item\.W', which differ only in case",
        ),
        (pa.field("n", pa.int64(), nullable=False), 'must be nullable, because older rows.*type \\["null", "long"\\]'),
        (pa.field("a-b", pa.int64()), "a name that Avro does not allow"),
    ],
)
def test_what_a_given_schema_may_not_change(field: pa.Field, words: str) -> None:
    fields = [field if f.name == field.name else f for f in OWN]
    fields += [field] if field.name not in OWN.names else []
    rules = EvolutionRules(ROLES, given=True, new_nullable=False)
    with pytest.raises(SchemaRefusedError, match=words):
        evolve(OWN, pa.schema(fields), rules, "event.avsc")


def test_a_field_inside_a_struct_keeps_its_type_and_the_struct_may_grow() -> None:
    def schema(**members: pa.DataType) -> pa.Schema:
        return pa.schema([("meta", pa.struct([*members.items()])), ("v", pa.int64())])

    own, rules = schema(id=pa.string(), n=pa.int32()), EvolutionRules({"meta.id": "record key"})
    grown = schema(id=pa.string(), n=pa.int64(), more=pa.string())
    assert evolve(own, grown, rules, "s").schema == grown
    with pytest.raises(SchemaRefusedError, match=r"column 'meta' is .*; 'meta\.id' is the table's record key field"):
        evolve(own, schema(id=pa.int64(), n=pa.int32()), rules, "s")
    with pytest.raises(SchemaRefusedError, match="lacks the table's column 'meta', which is its record key field"):
        evolve(own, pa.schema([("v", pa.int64())]), rules, "s")
    numbers = schema(id=pa.int32(), n=pa.int32())
    with pytest.raises(SchemaRefusedError, match="whose type never changes"):
        evolve(numbers, schema(id=pa.int64(), n=pa.int32()), rules, "s")


def test_columns_that_do_not_come_any_more() -> None:
    own = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64(), nullable=False)])
    rest = pa.schema([own.field("k")])
    roles = {"k": "record key"}
    kept = evolve(own, rest, EvolutionRules(roles), "s")
    assert kept.schema == pa.schema([own.field("k"), pa.field("v", pa.int64())])
    assert kept.changes == ("column 'v' is missing in new records and is nullable now",)
    assert evolve(own, rest, EvolutionRules(roles, missing="drop"), "s").schema == rest
    assert not evolve(own, rest, EvolutionRules(roles, filled=frozenset({"v"})), "s").changes
    with pytest.raises(SchemaRefusedError, match="lacks the table's column 'v', and hoodie.write.set.null"):
        evolve(own, rest, EvolutionRules(roles, missing="fail"), "s")
    with pytest.raises(SchemaRefusedError, match="column 'k', which is its record key field"):
        evolve(own, pa.schema([own.field("v")]), EvolutionRules(roles), "s")


def test_nested_types_grow_inside() -> None:
    own = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
    other = pa.struct([pa.field("x", pa.int64()), pa.field("z", pa.bool_(), nullable=False)])
    wanted = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string()), pa.field("z", pa.bool_())])
    assert widened(own, other) == wanted
    assert widened(pa.list_(pa.int32()), pa.list_(pa.int64())) == pa.list_(pa.int64())
    assert widened(own, pa.struct([pa.field("x", pa.string())])) is None
    assert widened(pa.struct([pa.field("x", pa.int32())]), pa.struct([pa.field("X", pa.int32())])) is None
    old = pa.table({"s": pa.array([{"x": 1, "y": "a"}], own)})
    assert conform(old, pa.schema([("s", wanted)]), "f").column("s").to_pylist() == [{"x": 1, "y": "a", "z": None}]


def test_decimals_keep_their_scale() -> None:
    d = pa.decimal128
    assert widened(d(8, 2), d(14, 2)) == d(14, 2)
    assert widened(d(14, 2), d(16, 4)) == d(14, 2), "no digit before the point more"
    assert widened(d(8, 2), d(16, 4)) == d(14, 2)
    assert widened(d(30, 20), d(38, 0)) is None
    assert is_judged(d(30, 20), d(38, 0))
    with pytest.raises(SchemaRefusedError):
        evolve(pa.schema([("x", d(14, 2))]), pa.schema([("x", d(16, 4))]), EvolutionRules(given=True), "s")


@given(st.lists(st.floats(width=32) | st.none()))
def test_floats_are_widened_by_their_shortest_digits(values: list[float | None]) -> None:
    found = to_double(pa.array(values, pa.float32())).to_pylist()
    narrow = pa.array(found, pa.float64()).cast(pa.float32())
    assert str(narrow.to_pylist()) == str(pa.array(values, pa.float32()).to_pylist())
    assert to_double(pa.array([0.3], pa.float32()))[0].as_py() == 0.3
