"""PostgreSQL behind a pooler that gives a connection to another client after each transaction."""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

from leasehold_testing.stored import entry, job_row, job_state, lead
from scheduler.errors import StoreUnavailableError
from scheduler.store.queries import JobQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.store.sql.store import SqlStore

SOCKET = ".s.PGSQL.5432"
#: What a pooler by transaction takes at the start of a connection.
PASSED_ON = {"user", "database", "client_encoding", "application_name", "DateStyle", "TimeZone"}


class Pooler:
    """Stands before a server, and notes what no pooler by transaction passes on.

    Args:
        server: folder of the server's socket.
    """

    def __init__(self, server: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="lh-pool-")
        self.faults: list[str] = []
        self.statements = 0
        self._server = f"{server}/{SOCKET}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self.folder}/{SOCKET}")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        shutil.rmtree(self.folder)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            server.connect(self._server)
            reader = client.makefile("rb")
            head = reader.read(4)
            body = reader.read(struct.unpack("!I", head)[0] - 4)
            names = body[4:].split(b"\0")[::2]
            self.faults += [
                name.decode() for name in names if name.decode() not in PASSED_ON | {""}
            ]
            server.sendall(head + body)
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
            while head := reader.read(5):
                body = reader.read(struct.unpack("!I", head[1:])[0] - 4)
                self._look(head[:1], body)
                server.sendall(head + body)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)

    def _look(self, kind: bytes, body: bytes) -> None:
        name, text, *_ = (body + b"\0\0").split(b"\0")
        if kind == b"Q":
            name, text = b"", name
        if kind == b"P" and name:
            self.faults.append(f"prepared statement {name.decode()}")
        if kind in {b"P", b"Q"}:
            self.statements += 1
            words = text.decode().upper().split()
            if words[:1] == ["SET"] and words[1:2] != ["LOCAL"]:
                self.faults.append(text.decode())
            if words[:1] in (["LISTEN"], ["DECLARE"]) or "PG_ADVISORY_LOCK" in " ".join(words):
                self.faults.append(text.decode())


@pytest.fixture
def pooler(postgres) -> Iterator[Pooler]:
    pooler = Pooler(str(postgres.folder))
    yield pooler
    pooler.close()


def test_a_store_leaves_nothing_behind_on_a_connection(
    postgres, pooler, open_store: Callable[[str], SqlStore]
) -> None:
    direct = postgres.new_database()
    store = open_store(direct.replace(str(postgres.folder), pooler.folder))
    token = lead(store)
    for number in range(1, 12):  # a driver prepares what it has seen some times
        rows = {"jobs": (job_row(number),)}
        store.commit(entry(number, **rows), token=token)
        store.renew_leadership(token, now_s=float(number), ttl_s=60.0)
    states = tuple(job_state(number) for number in range(1, 12))
    store.commit(entry(12, states=states), token=token)
    assert len(store.jobs(JobQuery()).rows) == 11
    assert store.load().next_sequence == 13
    assert pooler.statements > 50
    assert pooler.faults == []


def test_a_writer_still_waits_for_a_lock_for_a_while_only(
    postgres, open_store, monkeypatch
) -> None:
    monkeypatch.setattr("scheduler.store.sql.databases.LOCK_TIMEOUT_S", 1)
    store = open_store(postgres.new_database())
    token = lead(store)
    with store._engine.begin() as other:
        other.exec_driver_sql("LOCK TABLE head IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            store.commit(entry(1), token=token)
    store.commit(entry(1), token=token)


def test_a_read_only_database_counts_as_away(postgres, open_store) -> None:
    """As that of a standby which is not promoted yet."""
    url = postgres.new_database()
    store = open_store(url)
    token = lead(store)
    name = url.split("/")[3].split("?")[0]
    with store._engine.connect() as connection:
        autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
        autocommit.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store.close()
    store = open_store(url)
    with pytest.raises(StoreUnavailableError, match="is read-only, as a standby of PostgreSQL is"):
        store.commit(entry(1), token=token)
    assert store.head().sequence == 0
