"""Many rows in few statements.

A round writes thousands of rows. One statement for each would take Python's lock for each, so all
other work of the daemon would wait. A statement with hundreds of rows runs in the database's own
code. SQLite gets them as ``VALUES`` with bound parameters, PostgreSQL as one JSON document; both
keep every finite number as it is. Needs SQLite 3.33 (2020) for ``UPDATE FROM``.
"""

from __future__ import annotations

import functools
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import orjson

from scheduler.store.sql import tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import Table
    from sqlalchemy.engine import Connection

    Rows = Sequence[Sequence[Any]]

#: Rows in one statement of SQLite's, as a power of two: with 22 columns it takes 5,632 of the
#: 32,766 parameters that are allowed.
_MOST = 256


def insert_rows(connection: Connection, table: Table, names: Sequence[str], rows: Rows) -> None:
    """Insert rows.

    Args:
        connection: in a transaction.
        table: the table.
        names: columns of the rows.
        rows: a value for each of those columns.
    """
    _put(connection, table, tuple(names), rows, "")


def upsert_rows(
    connection: Connection,
    table: Table,
    names: Sequence[str],
    rows: Rows,
    *,
    added: Collection[str] = (),
) -> None:
    """Insert rows, or replace those with the same primary key; of two such rows the last counts.

    Args:
        connection: in a transaction.
        table: the table.
        names: columns of the rows.
        rows: a value for each of those columns.
        added: columns with values that are added to the stored ones; then no key may come twice.
    """
    key = [column.name for column in table.primary_key]
    places = [list(names).index(name) for name in key]
    unique = {tuple(row[place] for place in places): row for row in rows}
    kept = ", ".join(
        f'"{name}" = {table.name}."{name}" + excluded."{name}"'
        if name in added
        else f'"{name}" = excluded."{name}"'
        for name in names
        if name not in key
    )
    tail = f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {kept}"
    _put(connection, table, tuple(names), list(unique.values()), tail)


def update_rows(
    connection: Connection, table: Table, names: Sequence[str], rows: Rows, *, rare: int = 0
) -> int:
    """Update rows by their first column.

    Args:
        connection: in a transaction.
        table: the table.
        names: columns of the rows, the first of them the key.
        rows: a value for each of those columns; no key twice.
        rare: how many of the last columns seldom change. They are compared first, so that their
            indexes are not written unnecessarily.

    Returns:
        The number of rows with a key that is stored.
    """
    head, often = names[0], list(names[1 : len(names) - rare])
    seldom = list(names[len(names) - rare :])
    pick = itemgetter(*range(len(names) - rare))
    changed = _update(connection, table, [head, *often], [pick(row) for row in rows])
    if seldom:
        pick = itemgetter(0, *range(len(names) - rare, len(names)))
        _update(connection, table, [head, *seldom], [pick(row) for row in rows], compare=True)
    return changed


def _put(
    connection: Connection, table: Table, names: tuple[str, ...], rows: Rows, tail: str
) -> None:
    columns = ", ".join(f'"{name}"' for name in names)
    begin = f"INSERT INTO {table.name} ({columns}) "
    if connection.dialect.name == "postgresql":
        if rows:
            source = f"SELECT {columns} FROM {_recordset(table, names)}"  # noqa: S608 - names of columns
            connection.exec_driver_sql(begin + source + tail, (_document(names, rows),))
        return
    for some in _chunks(rows):
        text = begin + _values(len(some), len(names)) + tail
        connection.exec_driver_sql(text, tuple(chain.from_iterable(some)))


def _update(
    connection: Connection, table: Table, names: list[str], rows: Rows, *, compare: bool = False
) -> int:
    changed = 0
    postgresql = connection.dialect.name == "postgresql"
    key = names[0]
    for some in [rows] if postgresql and rows else _chunks(rows):
        if postgresql:
            source = _recordset(table, names)
            given = {name: f'v."{name}"' for name in names}
            parameters: tuple[Any, ...] = (_document(names, some),)
        else:
            source = f"({_values(len(some), len(names))}) AS v"
            given = {name: f"v.column{place}" for place, name in enumerate(names, start=1)}
            parameters = tuple(chain.from_iterable(some))
        sets = ", ".join(f'"{name}" = {given[name]}' for name in names[1:])
        where = f'{table.name}."{key}" = {given[key]}'
        if compare:
            other = "IS DISTINCT FROM" if postgresql else "IS NOT"
            differ = (f'{table.name}."{name}" {other} {given[name]}' for name in names[1:])
            where += f" AND ({' OR '.join(differ)})"
        text = f"UPDATE {table.name} SET {sets} FROM {source} WHERE {where}"  # noqa: S608 - names of columns
        changed += connection.exec_driver_sql(text, parameters).rowcount
    return changed


def _chunks(rows: Rows) -> Iterator[Rows]:
    """Cut rows into powers of two, so that few different statements must be prepared."""
    first = 0
    while first < len(rows):
        size = min(_MOST, 1 << ((len(rows) - first).bit_length() - 1))
        yield rows[first : first + size]
        first += size


@functools.cache
def _values(rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"VALUES {', '.join([row] * rows)}"


def _recordset(table: Table, names: Sequence[str]) -> str:
    columns = ", ".join(f'"{name}" {_type(table, name)}' for name in names)
    return f"json_to_recordset(%s::json) AS v({columns})"


def _type(table: Table, name: str) -> str:
    kind = table.columns[name].type
    if isinstance(kind, type(tables.NUMBER)):
        return "bigint"
    return "text" if isinstance(kind, type(tables.TEXT)) else "double precision"


def _document(names: Sequence[str], rows: Rows) -> str:
    return orjson.dumps([dict(zip(names, row, strict=True)) for row in rows]).decode()
