"""Desired sets for agents: the leases that each node is to hold."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson

from scheduler.control.leases.apply_commands import stop_times
from scheduler.errors import InputError
from scheduler.protocol.bounds import clean_text
from scheduler.protocol.desired import Desired, DesiredLease, lease_to_send
from scheduler.protocol.variables import variables_of
from scheduler.secret_box import SecretBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scheduler.control.state.leases import LiveLease, Member
    from scheduler.control.state.view import PublishedState
    from scheduler.protocol.desired import DesiredExec

_log = logging.getLogger("leasehold.service")

#: An agent of the previous release would start a job without its uploaded code. In this folder,
#: which does not exist, the start fails and shows why.
NEEDS_NEWER_AGENT = "/nonexistent/this-agent-is-too-old-for-uploads"
#: The program of a job whose secret variables cannot be sent, and which its node may run already. A
#: node that does not run it cannot start this one, and the message names it.
NEEDS_SECRETS = "/nonexistent/secret-variables-cannot-be-sent"
#: Ports for rank 0 of a gang; below the range from which systems choose ports themselves.
FIRST_PORT, PORTS = 12_000, 16_000
#: Fields that change between two answers while a lease lasts.
_PASSING = ("remaining_s", "notice_in_s")


class DesiredSets:
    """Builds the desired set of each node from the view.

    A lease that cannot be sent is left out and reported to control. The node then reports that it
    does not know the lease, which ends that lease alone.

    Args:
        untold: called with lease id, node and reason, once for each lease that cannot be sent.
        box: opens the jobs' secret variables; one without a key by default.
        execs: returns the commands that a node must run, once.
    """

    def __init__(
        self,
        untold: Callable[[int, str, str], None],
        box: SecretBox | None = None,
        execs: Callable[[str], tuple[DesiredExec, ...]] = lambda _node: (),
    ) -> None:
        self._execs = execs
        self._untold = untold
        self._box = box or SecretBox()
        #: node -> lease id -> (master's address, the JSON that is valid while the lease lasts).
        self._pieces: dict[str, dict[int, tuple[str, bytes]]] = {}

    def of(
        self, view: PublishedState, name: str, *, now_s: float, held_s: float, hindrance: str = ""
    ) -> Desired:
        """Return a node's desired set; empty for a node that is not known.

        Args:
            view: the published state.
            name: of the node.
            now_s: the time.
            held_s: how long the request was held.
            hindrance: why secret variables may not be sent to it; empty if they may.
        """
        node = view.nodes.by_name.get(name)
        if node is None:
            return Desired(term=view.term, revision=0, held_s=held_s, leases=())
        told = (
            self._told(view, live, member, now_s, hindrance) for live, member in _wanted(view, name)
        )
        return Desired(
            term=view.term,
            revision=node.revision,
            held_s=held_s,
            leases=tuple(lease for lease, _ in filter(None, told)),
            images=view.images.get(name, ()),
            execs=self._execs(name),
        )

    def json_of(
        self, view: PublishedState, name: str, *, now_s: float, held_s: float, hindrance: str = ""
    ) -> bytes:
        """Return the desired set as JSON, made of pieces that are cached while their leases last.

        A thousand nodes get within a second the message that most of their leases go on unchanged.
        """
        node = view.nodes.by_name.get(name)
        revision = 0 if node is None else node.revision
        head: dict[str, object] = {"term": view.term, "revision": revision, "held_s": held_s}
        if images := view.images.get(name):
            head["images"] = [asdict(image) for image in images]
        if execs := self._execs(name):
            head["execs"] = [one.to_dict() for one in execs]
        before, after = self._pieces.get(name, {}), {}
        pieces = []
        for live, member in _wanted(view, name):
            lease_id, address = live.lease.lease_id, _master(view, live)
            piece = before.get(lease_id)
            if piece is None or piece[0] != address:
                told = self._told(view, live, member, now_s, hindrance)
                if told is None:
                    continue
                piece = address, told[1]
            # A lease with secrets is built each time, for the connection that asks.
            if not view.jobs.by_id[live.lease.job_id].spec.secret_env:
                after[lease_id] = piece
            passing = orjson.dumps(dict(zip(_PASSING, _times(live, member, now_s), strict=True)))
            pieces.append(b"%b,%b" % (piece[1], passing[1:]))
        if after:
            self._pieces[name] = after
        else:
            self._pieces.pop(name, None)
        return b'%b,"leases":[%b]}' % (orjson.dumps(head)[:-1], b",".join(pieces))

    def _told(
        self, view: PublishedState, live: LiveLease, member: Member, now_s: float, hindrance: str
    ) -> tuple[DesiredLease, bytes] | None:
        try:
            lease = _desired(view, live, member, now_s)
            if kept := view.jobs.by_id[live.lease.job_id].spec.secret_env:
                lease = self._with_secrets(
                    lease, kept, hindrance, runs=member.seen or live.restored
                )
            plain = lease_to_send(lease)
            for name in _PASSING:
                del plain[name]
            return lease, orjson.dumps(plain)[:-1]
        except (InputError, TypeError, ValueError, OverflowError) as error:
            if not member.untold:
                why = clean_text(f"the lease cannot be sent to node '{member.node}': {error}")
                _log.error("job '%s': %s", live.lease.job_id, why)
                self._untold(live.lease.lease_id, member.node, why)
            return None

    def _with_secrets(
        self, lease: DesiredLease, kept: Mapping[str, str], hindrance: str, *, runs: bool
    ) -> DesiredLease:
        """Return a lease with its job's secret variables.

        If they cannot be sent, a lease that its node may hold already goes on without them.

        Raises:
            InputError: they cannot be sent, and the node does not hold the lease yet.
        """
        try:
            return replace(lease, secret_env=self._opened(kept, lease.job_id, hindrance))
        except InputError:
            if not runs:
                raise
            return replace(lease, command=(NEEDS_SECRETS,), upload="", working_dir="")

    def _opened(self, kept: Mapping[str, str], job_id: str, hindrance: str) -> Mapping[str, str]:
        if hindrance:
            raise InputError(f"its secret_env is not sent: {hindrance}")
        return MappingProxyType(self._box.opened(kept, job_id))


def _wanted(view: PublishedState, name: str) -> Iterator[tuple[LiveLease, Member]]:
    for live, member in view.leases.held_by(name):
        # A job that has just completed leaves the book before the end of its lease is committed.
        if member.wanted and live.lease.job_id in view.jobs.by_id:
            yield live, member


def _times(live: LiveLease, member: Member, now_s: float) -> tuple[float, float | None]:
    """Return the seconds until the deadline and until the notice."""
    remaining_s = min(live.until_s, member.leave_by_s or math.inf) - now_s
    return remaining_s, 0.0 if live.revoked or member.leave_by_s is not None else None


def _master(view: PublishedState, live: LiveLease) -> str:
    """Return where rank 0 listens: on one node, what no other network and no firewall changes."""
    if len(live.members) == 1:
        return "127.0.0.1"
    master = view.nodes.by_name.get(live.members[0].node)
    return master.address if master is not None else "127.0.0.1"


def _local_indices(view: PublishedState, member: Member) -> tuple[int, ...]:
    """Return the node's own indices of a lease's workers."""
    node = view.nodes.by_name.get(member.node)
    return member.local if node is None else tuple(map(node.index_of, member.local))


def _desired(view: PublishedState, live: LiveLease, member: Member, now_s: float) -> DesiredLease:
    lease = live.lease
    record = view.jobs.by_id[lease.job_id]
    spec = record.spec
    notice_s, grace_s = stop_times(view, spec)
    remaining_s, notice_in_s = _times(live, member, now_s)
    return DesiredLease(
        lease_id=lease.lease_id,
        attempt=lease.attempt,
        token=lease.token,
        job_id=lease.job_id,
        command=spec.command,
        env=variables_of(spec, live.gang, live.paces),
        working_dir=NEEDS_NEWER_AGENT if spec.upload else spec.working_dir,
        checkpoint_dir=spec.checkpoint_dir,
        workers=_local_indices(view, member),
        rank=member.rank,
        world_size=len(lease.workers),
        local_ranks=tuple(range(len(member.local))),
        master_addr=_master(view, live),
        master_port=FIRST_PORT + lease.lease_id % PORTS,
        total_steps=None if spec.total_steps is None else int(spec.total_steps),
        steps_done=int(live.base_steps),
        remaining_s=remaining_s,
        notice_in_s=notice_in_s,
        notice_s=notice_s,
        grace_s=grace_s,
        progress_regex=spec.progress_regex,
        progress_file=spec.progress_file,
        memory_bytes=spec.memory_bytes,
        cpus=spec.cpus,
        image=spec.image,
        gang=tuple(len(m.local) for m in live.members) if len(live.members) > 1 else (),
        node_rank=live.members.index(member),
        kubernetes=spec.kubernetes,
        project=spec.project,
        owner=record.owner,
        plan=live.plan,
        uid=view.owners.of(spec.project, record.owner),
        upload=spec.upload,
        nonce=lease.nonce,
    )
