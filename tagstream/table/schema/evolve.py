"""Evolve a table's schema to the schema of incoming records, by rules.

The schema only grows, unless a rule drops columns: new columns are nullable and added at the end, types are widened,
and a column that is missing in new records is kept. A change that would lose a value or move rows (of a key or a
partition field) is an error that names the column.

Dropped columns still have values in the files that were not rewritten since. Readers match columns by name. If a column
is added again with another type, readers would read it from those files in the new type, which fails or gives other
values. The same holds for nested columns.

Hudi's schema evolution on read (``hoodie.schema.on.read.enable``) matches columns by ids. Each of its changes writes a
file ``.hoodie/.schema/<instant>.schemacommit`` with all schemas so far. A renamed column has its values under the old
name in older files; readers and writers that match by name see nulls there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tagstream.table.errors import CorruptFileError, SchemaRefusedError, UnsupportedTableError
from tagstream.table.fields import has_field, type_of
from tagstream.table.schema.conform import alike, is_judged, meant, same_names, widened
from tagstream.table.schema.schema import arrow_to_avro, is_meta_column
from tagstream.table.storage.storage import META_FOLDER, Storage

CORRECT_TIMES = "tagstream.schema.correct.times"
Missing = Literal["null", "drop", "fail"]


@dataclass(frozen=True)
class EvolutionRules:
    """The rules of an evolution.

    ``roles``: the role of a column, or of a field of a struct column, in the table ("record key", ...). It keeps its
    type and cannot be dropped. ``missing``: what happens to a column that the incoming schema lacks. ``given``: a user
    gave the incoming schema; it is not that of a record. Then a narrower type is an error, and a new column must be
    nullable unless ``new_nullable``. ``filled``: columns that are filled where records lack them (from a default, or
    from outside the record). ``aliases``: other names of incoming columns, with the columns. ``corrected``: whether the
    right types of the table's numbers replace the wrong ones (``table.schema.conform``).
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    missing: Missing = "null"
    given: bool = False
    new_nullable: bool = True
    filled: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    corrected: bool = False

    def __hash__(self) -> int:
        pairs = [tuple(sorted(found.items())) for found in (self.roles, self.aliases)]
        return hash((*pairs, self.missing, self.given, self.new_nullable, self.filled, self.corrected))

    def role(self, column: str) -> str | None:
        """The role of a column or of a field inside it; None without one."""
        return next((self.roles[name] for name in (column, *self.inside(column)) if name in self.roles), None)

    def inside(self, column: str) -> list[str]:
        """Dotted paths of the fields inside a column that have a role."""
        return [name for name in self.roles if name.startswith(f"{column}.")]


@dataclass(frozen=True)
class Evolved:
    """The schema after the evolution, and a text for each change. Without changes it is the schema before."""

    schema: pa.Schema
    changes: tuple[str, ...]


def evolve(own: pa.Schema, incoming: pa.Schema, rules: EvolutionRules, source: str) -> Evolved:
    """Evolve the table's schema ``own`` to ``incoming``, both without meta columns. SchemaRefusedError names the column.

    ``source`` names the incoming schema in messages.
    """
    changes: list[str] = []
    fields = [kept for f in own if (kept := _kept(f, incoming, rules, source, changes)) is not None]
    for f in incoming:
        if f.name in own.names or is_meta_column(f.name):
            continue
        fields.append(_added(f, own.names, rules, source))
        changes.append(f"column {f.name!r} ({avro_type(f)}) is new")
    made = pa.schema(fields)
    if changes:
        try:
            arrow_to_avro(made, "t")
        except UnsupportedTableError as e:
            raise SchemaRefusedError(f"{source}: {e}; the table's schema is unchanged") from e
    return Evolved(made, tuple(changes))


def _kept(
    own: pa.Field, incoming: pa.Schema, rules: EvolutionRules, source: str, changes: list[str]
) -> pa.Field | None:
    """A column of the table after the change; None when it is dropped."""
    name = own.name
    if name not in incoming.names:
        return _missing(own, rules, source, changes)
    other = incoming.field(name)
    kind = _type(own, other, rules, source)
    made = own.with_type(kind).with_nullable(own.nullable or other.nullable)
    if not kind.equals(own.type):
        changes.append(f"column {name!r} changes from {avro_type(own)} to {avro_type(made)}")
    elif made.nullable and not own.nullable:
        if rules.role(name) is not None:
            return own
        changes.append(f"column {name!r} is nullable now")
    return made


def _missing(own: pa.Field, rules: EvolutionRules, source: str, changes: list[str]) -> pa.Field | None:
    name = own.name
    if name in rules.filled:
        return own
    if (role := rules.role(name)) is not None:
        raise SchemaRefusedError(
            f"{source} lacks the table's column {name!r}, which is its {role} field; add it again, or make a new table"
        )
    if rules.missing == "fail":
        raise SchemaRefusedError(
            f"{source} lacks the table's column {name!r}, and hoodie.write.set.null.for.missing.columns=false: add the "
            "column, or set it to true to write nulls"
        )
    if rules.missing == "drop":
        changes.append(f"column {name!r} is dropped")
        return None
    if not own.nullable:
        changes.append(f"column {name!r} is missing in new records and is nullable now")
    return own.with_nullable(True)


def _same_at(name: str, own: pa.Field, kind: pa.DataType) -> bool:
    """Whether a column, or a field inside it, has the same type when the column has the type ``kind``."""
    before, after = pa.schema([own]), pa.schema([own.with_type(kind)])
    return not has_field(before, name) or type_of(before, name).equals(type_of(after, name))


def _type(own: pa.Field, other: pa.Field, rules: EvolutionRules, source: str) -> pa.DataType:
    """The column's type after the change."""
    name, right = own.name, meant(own.type, other.type)
    kind = widened(right if rules.corrected else own.type, other.type)
    message = f"{source}: column {name!r} is {avro_type(other)}, in the table it is {avro_type(own)}"
    for field_name in (name, *rules.inside(name)):
        if field_name in rules.roles and (kind is None or not _same_at(field_name, own, kind)):
            it = "it" if field_name == name else f"{field_name!r}"
            raise SchemaRefusedError(
                f"{message}; {it} is the table's {rules.roles[field_name]} field, whose type never changes: keep it, "
                "or make a "
                "new table"
            )
    if kind is None and is_judged(own.type, other.type) and not rules.given:
        return own.type
    if kind is None and not right.equals(own.type):
        raise SchemaRefusedError(
            f"{message}; where Hudi 0.x or 1.0 wrote the table from such a source, its numbers have the source's type under "
            f"a wrong name (milliseconds are then read as a time of 1970): set {CORRECT_TIMES}=true to correct the table's "
            "schema; where the numbers are right, give the source's column the table's type"
        )
    if kind is None or (rules.given and _loses(kind, other.type)):
        raise SchemaRefusedError(
            f"{message}; a column's type is only widened (int to long, float to double, a decimal with more digits "
            "before the "
            "point), because other changes would lose values: keep the type, or use a new column name for the new type"
        )
    return kind


def _loses(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a user's type is narrower than the table's. Missing fields of a struct do not make it narrower."""
    t = pa.types
    if t.is_nested(kind):
        return False
    return not kind.equals(wanted)


def _added(new: pa.Field, names: list[str], rules: EvolutionRules, source: str) -> pa.Field:
    twin = same_names(names, new.name)
    if twin is not None:
        raise SchemaRefusedError(
            f"{source}: the new column {new.name!r} differs from the table's {twin!r} only in case, and engines treat "
            "them as the same; give it another name"
        )
    twins = alike([new])
    if twins is not None:
        raise SchemaRefusedError(
            f"{source}: the new column {new.name!r} has the fields {twins[0]!r} and {twins[1]!r}, which differ only in "
            "case, and engines treat them as the same; give one of them another name"
        )
    if not new.nullable and not rules.new_nullable:
        raise SchemaRefusedError(
            f"{source}: the new column {new.name!r} must be nullable, because older rows have no value (a default is for "
            f'records only): give it the type ["null", "{avro_type(new)}"] with the default null, or set '
            "hoodie.datasource.write.new.columns.nullable=true"
        )
    return new.with_nullable(True)


def avro_type(column: pa.Field) -> str:
    """A column's type as in an Avro schema file."""
    try:
        record = arrow_to_avro(pa.schema([pa.field("c", column.type, nullable=False)]), "t")
    except UnsupportedTableError:
        return str(column.type)
    avro = record["fields"][0]["type"]
    if isinstance(avro, dict):
        name = avro.get("logicalType") or avro["type"]
        size = f"({avro['precision']}, {avro['scale']})" if name == "decimal" else ""
        return f"{name}{size}"
    return str(avro)


_Path = tuple[str, ...]
_ITEM = "[]"


@dataclass(frozen=True)
class Clash:
    """A new column, or a new member of a nested one, by its path, with its former and its new type."""

    name: str
    was: pa.DataType
    now: pa.DataType


def clash(own: pa.Schema, made: pa.Schema, former: Iterable[pa.Schema]) -> Clash | None:
    """The first column or member that is new in ``made`` and that files of a ``former`` schema have in another type.

    Types that the new type holds do not count. ``own`` is the table's schema before. None where there is none.
    ``former`` is iterated only when something is new.
    """
    known = dict(_leaves(own))
    new = {path: kind for path, kind in _leaves(made) if path not in known}
    if not new:
        return None
    for schema in former:
        for path, was in _leaves(schema):
            for place, now in new.items():
                if place == path and not _holds(now, was):
                    return Clash(_path_text(place), was, now)
                if place != path and _is_above(place, path, known):
                    return Clash(_path_text(place), was, now)
    return None


def _holds(now: pa.DataType, was: pa.DataType) -> bool:
    kind = widened(was, now)
    return kind is not None and kind.equals(now)


def _is_above(place: _Path, path: _Path, known: dict[_Path, pa.DataType]) -> bool:
    """Whether one path is a plain column where the other one is nested."""
    short, long = sorted((place, path), key=len)
    return long[: len(short)] == short and short not in known


def _leaves(schema: pa.Schema) -> Iterator[tuple[_Path, pa.DataType]]:
    """Every plain column with its path, including members of nested columns."""
    for column in schema:
        yield from _below((column.name,), column.type)


def _below(path: _Path, kind: pa.DataType) -> Iterator[tuple[_Path, pa.DataType]]:
    t = pa.types
    if t.is_struct(kind):
        for member in kind:
            yield from _below((*path, member.name), member.type)
    elif t.is_list(kind) or t.is_large_list(kind):
        yield from _below((*path, _ITEM), kind.value_type)
    elif t.is_map(kind):
        yield from _below((*path, _ITEM, "value"), kind.item_type)
    else:
        yield path, kind


def _path_text(path: _Path) -> str:
    return ".".join(path).replace(f".{_ITEM}", _ITEM)


_FOLDER = f"{META_FOLDER}/.schema"
_SUFFIX = ".schemacommit"


def column_not_by_name(storage: Storage) -> str | None:
    """A column that was renamed, or whose name was another column's; None when names identify columns in all files."""
    if not any(entry.name == ".schema" and entry.is_dir for entry in storage.list(META_FOLDER)):
        return None
    done = sorted(entry.name for entry in storage.list(_FOLDER) if entry.name.endswith(_SUFFIX))
    if not done:
        return None
    path = f"{_FOLDER}/{done[-1]}"
    try:
        schemas = json.loads(storage.read(path))["schemas"]
        found = [pair for schema in schemas for pair in _columns(schema, "")]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"{storage.where(path)} is not a schema history that can be read ({error!r}); restore the file"
        ) from error
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}
    for number, name in found:
        if names.setdefault(number, name) != name:
            return f"{names[number]} (also {name})"
        if numbers.setdefault(name, number) != number:
            return name
    return None


def _columns(schema: Any, above: str) -> Iterator[tuple[int, str]]:
    """(id, path) of the columns and of the members of nested ones."""
    if not isinstance(schema, dict):
        return
    for column in schema.get("fields") or ():
        path = f"{above}{column['name']}"
        yield column["id"], path
        yield from _columns(column["type"], f"{path}.")
    for member in ("element", "value"):
        yield from _columns(schema.get(member), f"{above}{member}.")
