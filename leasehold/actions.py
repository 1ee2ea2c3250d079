"""What a client can do besides submitting and watching: a method for each action.

A job is named by its id, the beginning of it, or its name, as on the command line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from leasehold.naming import send_for_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


class Actions(ABC):
    """The actions of ``Client``; each raises ``ClientError`` where it is refused.

    One that is given a word that means several jobs raises ``AmbiguousNameError``, a ValueError.
    Answers are those of the REST interface, as dictionaries.
    """

    @abstractmethod
    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Any:
        """Make a request beneath ``/v1`` and return what its answer holds."""

    @abstractmethod
    def _on_job(self, word: str, do: Callable[[str], T]) -> T:
        """Do something with the id of the job that a word means."""

    @abstractmethod
    def _page_of_jobs(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page of the jobs that are called in some way; none where none can be."""

    # -- jobs -------------------------------------------------------------------------------------

    def submit_all(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Submit up to 1,000 jobs at once; each item of the answer has ``job_id`` or ``error``."""
        return list(self.call("POST", "/jobs", {"jobs": [dict(job) for job in jobs]})["jobs"])

    def dry_run(self, **fields: Any) -> dict[str, Any]:
        """Tell whether and where a job with these fields could run; change nothing."""
        return dict(self.call("POST", "/jobs", fields, params={"dry_run": "true"}))

    def hold(self, job_id: str, *, reason: str = "") -> bool:
        """Keep a job from running until it is released; False if it was held."""
        return self._act_on_job(job_id, "hold", reason)

    def release(self, job_id: str, *, reason: str = "") -> bool:
        """Let a held job run again; False if it was not held."""
        return self._act_on_job(job_id, "release", reason)

    def requeue(self, job_id: str, *, reason: str = "") -> bool:
        """Stop a job and let it wait anew, or take up one that has ended; False if it waits."""
        return self._act_on_job(job_id, "requeue", reason)

    def act(
        self,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        selector: Mapping[str, Any] | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Do something to many jobs, named by ids or by a selector.

        Args:
            action: ``cancel``, ``hold``, ``release`` or ``requeue``.
            ids: of the jobs, or beginnings of ids, or names.
            selector: instead: ``status``, ``project``, ``job_type``, ``owner``, ``labels``.
            reason: why; the history keeps it.
            dry_run: only tell what would become of each.
        """
        given = {"ids": ids and list(dict.fromkeys(ids)), "selector": selector}
        which = {name: value for name, value in given.items() if value}
        how = {name: value for name, value in (("reason", reason), ("dry_run", dry_run)) if value}

        def send(which: dict[str, Any]) -> dict[str, Any]:
            return dict(self.call("POST", "/jobs:act", {"action": action, **which, **how}))

        return send_for_words(which, send, self._page_of_jobs)

    def change(self, job_id: str, **fields: Any) -> bool:
        """Change ``weight`` or ``deadline_s`` (None: no deadline) of a job; False if as before."""
        return self._on_job(
            job_id, lambda found: bool(self.call("PATCH", job_path(found), fields)["changed"])
        )

    def explain(self, job_id: str) -> dict[str, Any]:
        """Say why a job is where it is, what would change that, and when."""
        return self._on_job(
            job_id, lambda found: dict(self.call("GET", job_path(found, "/explain")))
        )

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        """Return a job's leases, oldest first."""
        return self._on_job(
            job_id, lambda found: list(self.call("GET", job_path(found, "/attempts"))["attempts"])
        )

    def _act_on_job(self, job_id: str, action: str, reason: str) -> bool:
        body = {"reason": reason} if reason else None

        def do(found: str) -> bool:
            return bool(self.call("POST", job_path(found, f"/{action}"), body)["changed"])

        return self._on_job(job_id, do)

    # -- the cluster ------------------------------------------------------------------------------

    def cluster(self) -> dict[str, Any]:
        """Return the cluster in figures."""
        return dict(self.call("GET", "/cluster"))

    def leases(self) -> list[dict[str, Any]]:
        """Return the leases in force."""
        return list(self.call("GET", "/leases")["leases"])

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes with their workers."""
        return list(self.call("GET", "/nodes")["nodes"])

    def node(self, name: str) -> dict[str, Any]:
        """Return a node."""
        return dict(self.call("GET", _node_path(name)))

    def cordon(self, name: str, *, reason: str = "") -> dict[str, Any]:
        """Let nothing new start on a node; what runs there goes on."""
        return dict(self.call("POST", _node_path(name, "/cordon"), {"reason": reason}))

    def drain(self, name: str, *, reason: str = "") -> dict[str, Any]:
        """Let nothing new start on a node, and let what runs there leave with notice."""
        return dict(self.call("POST", _node_path(name, "/drain"), {"reason": reason}))

    def uncordon(self, name: str, *, reason: str = "") -> dict[str, Any]:
        """Put a node back into service."""
        return dict(self.call("POST", _node_path(name, "/uncordon"), {"reason": reason}))

    def forget_node(self, name: str) -> None:
        """Drop a node that is lost or drained."""
        self.call("DELETE", _node_path(name))

    # -- settings ---------------------------------------------------------------------------------

    def policy(self) -> dict[str, Any]:
        """Return the policy in force."""
        return dict(self.call("GET", "/policy"))

    def policies(self) -> list[dict[str, Any]]:
        """Return the policies that the scheduler knows."""
        return list(self.call("GET", "/policies")["policies"])

    def set_policy(
        self,
        name: str,
        *,
        agnostic: bool = False,
        space_sharing: bool = False,
        **parameters: Any,
    ) -> dict[str, Any]:
        """Put a policy in force, without a restart."""
        body = {"name": name, "parameters": parameters}
        flags = {"agnostic": agnostic, "space_sharing": space_sharing}
        return dict(self.call("PUT", "/policy", body | flags))

    def projects(self) -> list[dict[str, Any]]:
        """Return the projects with what they may have."""
        return list(self.call("GET", "/projects")["projects"])

    def set_project(self, name: str, **limits: Any) -> dict[str, Any]:
        """Set ``weight``, ``inner_policy``, ``max_workers``, ``max_jobs``; those left out go."""
        return dict(self.call("PUT", f"/projects/{quote(name, safe='')}", limits))

    def throughputs(self, **filters: Any) -> list[dict[str, Any]]:
        """Return the throughputs that are known: declared, measured and estimated."""
        return list(self.call("GET", "/throughputs", params=filters)["throughputs"])

    def declare_throughputs(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Declare steps/s: each figure has ``job_type``, ``worker_type`` and ``steps_per_s``."""
        return dict(self.call("PUT", "/throughputs", {"throughputs": [dict(f) for f in figures]}))

    def whoami(self) -> dict[str, Any]:
        """Return whose token this is, and what it may do."""
        return dict(self.call("GET", "/whoami"))

    def tokens(self) -> list[dict[str, Any]]:
        """Return the tokens, without their secrets."""
        return list(self.call("GET", "/tokens")["tokens"])

    def create_token(self, *, subject: str, role: str, **fields: Any) -> dict[str, Any]:
        """Make a token; the answer is the only place where its secret stands."""
        return dict(self.call("POST", "/tokens", {"subject": subject, "role": role, **fields}))

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token."""
        self.call("DELETE", f"/tokens/{quote(token_id, safe='')}")

    def enrol(self, **fields: Any) -> dict[str, Any]:
        """Make a one-time secret by which an agent gets its token."""
        return dict(self.call("POST", "/enrolments", fields))


def job_path(job_id: str, rest: str = "") -> str:
    """Return the path of a job, or of something of it."""
    return f"/jobs/{quote(job_id, safe='')}{rest}"


def _node_path(name: str, rest: str = "") -> str:
    return f"/nodes/{quote(name, safe='')}{rest}"
