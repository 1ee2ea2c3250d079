"""Tokens and enrolments in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, delete, insert, or_, select, update

from scheduler.store.forms import from_columns, to_columns, to_json
from scheduler.store.rows import EnrolmentRow, TokenRow
from scheduler.store.sql import tables
from scheduler.store.sql.databases import read_transaction, write_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import BindParameter
    from sqlalchemy.engine import Engine

_TOKENS = tables.TOKENS.c
_ENROLMENTS = tables.ENROLMENTS.c


class SqlSecrets:
    """The contract of ``Secrets`` in SQL."""

    _engine: Engine
    _writer: Engine

    def replace_specs(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the specifications of stored jobs."""
        if not specs:
            return
        new: BindParameter[str] = bindparam("new_spec")
        which = tables.JOBS.c.job_id == bindparam("changed")
        records = [{"changed": key, "new_spec": to_json(spec)} for key, spec in specs.items()]
        with write_transaction(self._writer) as connection:
            connection.execute(update(tables.JOBS).where(which).values(spec=new), records)

    def add_token(self, row: TokenRow) -> None:
        """Store a new token."""
        with write_transaction(self._writer) as connection:
            connection.execute(insert(tables.TOKENS), to_columns(row))

    def token(self, secret_hash: str) -> TokenRow | None:
        """Return the token of that hash."""
        statement = select(tables.TOKENS).where(_TOKENS.secret_hash == secret_hash)
        with read_transaction(self._engine) as connection:
            found = connection.execute(statement).first()
        return None if found is None else from_columns(TokenRow, found)

    def tokens(self, subject: str | None = None) -> tuple[TokenRow, ...]:
        """Return every token, or those of one subject, by id."""
        statement = select(tables.TOKENS).order_by(_TOKENS.token_id)
        if subject is not None:
            statement = statement.where(_TOKENS.subject == subject)
        with read_transaction(self._engine) as connection:
            found = connection.execute(statement).all()
        return tuple(from_columns(TokenRow, columns) for columns in found)

    def revoke_token(self, token_id: str, *, now_s: float) -> bool:
        """Revoke a token; False if no token has that id."""
        known = _TOKENS.token_id == token_id
        with write_transaction(self._writer) as connection:
            unrevoked = update(tables.TOKENS).where(known, _TOKENS.revoked_s.is_(None))
            connection.execute(unrevoked.values(revoked_s=now_s))
            return connection.execute(select(_TOKENS.token_id).where(known)).first() is not None

    def replace_token(self, token_id: str, *, now_s: float, expires_s: float) -> bool:
        """Note that a token's successor is in use."""
        earlier = case((_TOKENS.expires_s < expires_s, _TOKENS.expires_s), else_=expires_s)
        statement = (
            update(tables.TOKENS)
            .where(_TOKENS.token_id == token_id, _TOKENS.replaced_s.is_(None))
            .values(replaced_s=now_s, expires_s=earlier)
        )
        with write_transaction(self._writer) as connection:
            return bool(connection.execute(statement).rowcount)

    def drop_token(self, token_id: str) -> None:
        """Drop a token that is no longer needed."""
        with write_transaction(self._writer) as connection:
            connection.execute(delete(tables.TOKENS).where(_TOKENS.token_id == token_id))

    def forget_tokens(self, subject: str, *, before_s: float) -> int:
        """Drop a subject's tokens that were replaced and ended before a time."""
        statement = delete(tables.TOKENS).where(
            _TOKENS.subject == subject,
            _TOKENS.replaced_s.is_not(None),
            _TOKENS.expires_s < before_s,
        )
        with write_transaction(self._writer) as connection:
            return int(connection.execute(statement).rowcount)

    def touch_tokens(self, last_used_s: Mapping[str, float]) -> None:
        """Note when tokens (by id) were last used."""
        if not last_used_s:
            return
        used: BindParameter[float] = bindparam("used_s")
        statement = (
            update(tables.TOKENS)
            .where(
                _TOKENS.token_id == bindparam("touched"),
                or_(_TOKENS.last_used_s.is_(None), _TOKENS.last_used_s < used),
            )
            .values(last_used_s=used)
        )
        # In one order everywhere, so that two processes cannot wait for each other.
        records = [{"touched": key, "used_s": at_s} for key, at_s in sorted(last_used_s.items())]
        with write_transaction(self._writer) as connection:
            connection.execute(statement, records)

    def add_enrolment(self, row: EnrolmentRow) -> None:
        """Store a new enrolment."""
        with write_transaction(self._writer) as connection:
            connection.execute(insert(tables.ENROLMENTS), to_columns(row))

    def use_enrolment(
        self, secret_hash: str, *, node: str, now_s: float, named: bool = False
    ) -> EnrolmentRow | None:
        """Use an enrolment up; None if it cannot be used."""
        statement = (
            update(tables.ENROLMENTS)
            .where(
                _ENROLMENTS.secret_hash == secret_hash,
                _ENROLMENTS.used_s.is_(None),
                _ENROLMENTS.expires_s > now_s,
                _ENROLMENTS.node.in_((node,) if named else ("", node)),
            )
            .values(used_s=now_s, used_by=node)
        )
        with write_transaction(self._writer) as connection:
            if not connection.execute(statement).rowcount:
                return None
            found = connection.execute(
                select(tables.ENROLMENTS).where(_ENROLMENTS.secret_hash == secret_hash)
            ).one()
        return from_columns(EnrolmentRow, found)
