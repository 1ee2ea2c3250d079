"""The methods of the client about the cluster, its settings and the scheduler itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from leasehold.client.calls import Calls
from leasehold.client.paths import Named, path_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.client import forms


class ClusterCalls(Calls):
    """Nodes, leases, policy, projects, throughputs, tokens, webhooks."""

    # -- the cluster ------------------------------------------------------------------------------

    async def cluster(self) -> forms.Cluster:
        """Return the cluster in figures."""
        found: forms.Cluster = await self.call("GET", "/cluster")
        return found

    async def leases(self, **query: Unpack[forms.ListLeasesQuery]) -> list[forms.Lease]:
        """Return the leases in force; with ``idle`` only leases with nearly idle GPUs."""
        found: forms.Leases = await self.call("GET", "/leases", params=query)
        return found["leases"]

    async def plan(self) -> forms.PlannedRound:
        """Return the plan of the next round: which leases go on, and which wait for workers."""
        found: forms.PlannedRound = await self.call("GET", "/plan")
        return found

    async def allocation(self) -> forms.Allocation:
        """Return the allocation in force: which fractions of time jobs should get, and got."""
        found: forms.Allocation = await self.call("GET", "/allocation")
        return found

    async def nodes(self) -> list[forms.Node]:
        """Return the nodes with their workers."""
        found: forms.Nodes = await self.call("GET", "/nodes")
        return found["nodes"]

    async def node(self, name: str) -> forms.Node:
        """Return a node."""
        found: forms.Node = await self.call("GET", _node_path(name))
        return found

    async def node_attempts(
        self, name: str, **query: Unpack[forms.ListNodeAttemptsQuery]
    ) -> forms.NodeAttempts:
        """Return a page of the leases that had workers of a node, newest first."""
        found: forms.NodeAttempts = await self.call(
            "GET", _node_path(name, "attempts"), params=query
        )
        return found

    async def attempts_within(
        self, **query: Unpack[forms.ListClusterAttemptsQuery]
    ) -> forms.AttemptPage:
        """Return a page of the leases that held workers in a window, newest first."""
        found: forms.AttemptPage = await self.call("GET", "/attempts", params=query)
        return found

    async def cordon(self, name: str, *, reason: str = "") -> forms.Node:
        """Cordon a node: no new leases start there; running jobs go on."""
        return await self._act_on_node(name, "cordon", reason)

    async def drain(self, name: str, *, reason: str = "") -> forms.Node:
        """Drain a node: no new leases start there; running jobs leave with notice."""
        return await self._act_on_node(name, "drain", reason)

    async def uncordon(self, name: str, *, reason: str = "") -> forms.Node:
        """Put a node back into service."""
        return await self._act_on_node(name, "uncordon", reason)

    async def approve_workers(self, name: str, workers: Mapping[str, int]) -> forms.Node:
        """Set how many workers of each type a node may have."""
        body = {"workers": dict(workers)}
        found: forms.Node = await self.call("PUT", _node_path(name, "workers"), body)
        return found

    async def forget_node(self, name: str) -> None:
        """Drop a node that is lost."""
        await self.call("DELETE", _node_path(name))

    # -- settings ---------------------------------------------------------------------------------

    async def policy(self) -> forms.Policy:
        """Return the policy in force."""
        found: forms.Policy = await self.call("GET", "/policy")
        return found

    async def policies(self) -> list[forms.PolicySummary]:
        """Return the policies that the scheduler knows."""
        found: forms.Policies = await self.call("GET", "/policies")
        return found["policies"]

    async def policy_details(self, name: str) -> forms.PolicyDetails:
        """Return a policy with its program."""
        path = path_of("policies", Named("policy", name))
        found: forms.PolicyDetails = await self.call("GET", path)
        return found

    async def set_policy(
        self,
        /,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        agnostic: bool = False,
        space_sharing: bool = False,
        **further: Any,
    ) -> forms.Policy:
        """Put a policy in force, without a restart.

        Args:
            name: of the policy.
            parameters: of the policy, by name.
            agnostic: whether differences of worker types are hidden from it.
            space_sharing: whether two jobs may share workers.
            further: more parameters, as keywords.
        """
        body = {"name": name, "parameters": {**(parameters or {}), **further}}
        flags = {"agnostic": agnostic, "space_sharing": space_sharing}
        found: forms.Policy = await self.call("PUT", "/policy", body | flags)
        return found

    async def try_policy(
        self,
        /,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        agnostic: bool = False,
        space_sharing: bool = False,
        **further: Any,
    ) -> forms.PolicyTrial:
        """Return what a policy would change in the next round; the arguments are ``set_policy``'s.

        Nothing is changed.
        """
        body = {"name": name, "parameters": {**(parameters or {}), **further}}
        flags = {"agnostic": agnostic, "space_sharing": space_sharing}
        found: forms.PolicyTrial = await self.call("POST", "/policy:try", body | flags)
        return found

    async def projects(self) -> list[forms.Project]:
        """Return the projects with their limits."""
        found: forms.Projects = await self.call("GET", "/projects")
        return found["projects"]

    async def set_project(self, name: str, **limits: Unpack[forms.ProjectIn]) -> forms.Project:
        """Set ``weight``, ``inner_policy``, ``max_workers``, ``max_jobs``; those left out go."""
        path = path_of("projects", Named("project", name))
        found: forms.Project = await self.call("PUT", path, limits)
        return found

    async def reservations(self) -> list[forms.Reservation]:
        """Return the reservations, in the order in which their windows begin."""
        found: forms.Reservations = await self.call("GET", "/reservations")
        return found["reservations"]

    async def reservation(self, name: str) -> forms.Reservation:
        """Return a reservation with its workers by node."""
        found: forms.Reservation = await self.call("GET", _reservation_path(name))
        return found

    async def reserve(self, **what: Unpack[forms.ReservationIn]) -> forms.Reservation:
        """Reserve workers of a type from ``from_s`` until ``until_s``.

        A ``job`` is given by its id, the beginning of its id, or its name.
        """

        async def reserve(job: str) -> forms.Reservation:
            asked = {**what, "job": job} if job else what
            found: forms.Reservation = await self.call("POST", "/reservations", asked)
            return found

        return await self._on_job(what.get("job") or "", reserve)

    async def delete_reservation(self, name: str) -> None:
        """Give up a reservation."""
        await self.call("DELETE", _reservation_path(name))

    async def usage(self, **query: Unpack[forms.ShowUsageQuery]) -> forms.Usage:
        """Return worker-seconds under leases ``by`` project, owner and so on, in a window."""
        found: forms.Usage = await self.call("GET", "/usage", params=query)
        return found

    async def throughputs(
        self, **filters: Unpack[forms.ListThroughputsQuery]
    ) -> list[forms.Throughput]:
        """Return the throughputs that are known: declared, measured and estimated."""
        found: forms.Throughputs = await self.call("GET", "/throughputs", params=filters)
        return found["throughputs"]

    async def sharing(self, **filters: Unpack[forms.ListThroughputsQuery]) -> list[forms.Pair]:
        """Return the parts of their speeds alone that pairs of jobs keep on shared workers."""
        found: forms.Throughputs = await self.call("GET", "/throughputs", params=filters)
        return found.get("pairs", [])  # a scheduler of version 0.2 leaves it out

    async def declare_throughputs(
        self, figures: Sequence[forms.ThroughputIn] = (), pairs: Sequence[forms.PairIn] = ()
    ) -> forms.Changed:
        """Declare throughputs of jobs alone, and the loss of pairs that share workers.

        Args:
            figures: each has ``job_type``, ``worker_type`` and ``steps_per_s``.
            pairs: each has ``job_type``, ``with_job_type``, ``worker_type``, ``part`` and
                ``with_part``.
        """
        body = {"throughputs": [dict(figure) for figure in figures]}
        if pairs:  # a scheduler of version 0.2 refuses the field
            body["pairs"] = [dict(pair) for pair in pairs]
        found: forms.Changed = await self.call("PUT", "/throughputs", body)
        return found

    async def forget_throughputs(self, job_type: str) -> forms.Changed:
        """Forget the declared and measured throughputs of a job type."""
        query = {"job_type": job_type}
        found: forms.Changed = await self.call("DELETE", "/throughputs", params=query)
        return found

    async def whoami(self) -> forms.WhoAmI:
        """Return the token's subject and permissions."""
        found: forms.WhoAmI = await self.call("GET", "/whoami")
        return found

    async def sign_in_code(self) -> forms.SignInCode:
        """Make a one-time code with which a browser signs in to the page as this token."""
        made: forms.SignInCode = await self._once("/sign-in-codes", None)
        return made

    async def tokens(self) -> list[forms.Token]:
        """Return the tokens, without their secrets."""
        found: forms.Tokens = await self.call("GET", "/tokens")
        return found["tokens"]

    async def create_token(
        self, *, subject: str, role: forms.Role, **fields: Unpack[forms.TokenOptions]
    ) -> forms.NewToken:
        """Make a token; only this answer contains its secret."""
        body = {"subject": subject, "role": role, **fields}
        made: forms.NewToken = await self._once("/tokens", body)
        return made

    async def revoke_token(self, token_id: str) -> None:
        """Revoke a token."""
        await self.call("DELETE", path_of("tokens", Named("token id", token_id)))

    async def enrol(self, **fields: Unpack[forms.EnrolmentIn]) -> forms.Enrolment:
        """Make a one-time secret by which an agent gets its token."""
        made: forms.Enrolment = await self._once("/enrolments", fields)
        return made

    async def webhooks(self) -> list[forms.Webhook]:
        """Return the webhooks, without their addresses and secrets."""
        found: forms.Webhooks = await self.call("GET", "/webhooks")
        return found["webhooks"]

    async def create_webhook(
        self,
        name: str,
        url: str,
        *,
        on: Sequence[str],
        project: str | None = None,
        template: forms.Template = "json",
    ) -> forms.NewWebhook:
        """Register an address that receives events; only this answer contains its secret.

        Args:
            name: of the webhook, unique in its project.
            url: address of the receiver.
            on: kinds of events; dots may stand for underscores.
            project: only events of this project; None for all.
            template: ``json`` or ``slack``.
        """
        body = {"name": name, "url": url, "on": list(on), "project": project, "template": template}
        made: forms.NewWebhook = await self._once("/webhooks", body)
        return made

    async def test_webhook(self, name: str, *, project: str | None = None) -> forms.WebhookTest:
        """Send a test message, and return its result.

        Args:
            name: of the webhook.
            project: of the webhook, if several projects have the name.
        """
        asked = {"project": project}
        found: forms.WebhookTest = await self.call(
            "POST", _hook_path(name, "test"), {}, params=asked
        )
        return found

    async def resume_webhook(
        self, name: str, *, skip: bool = False, project: str | None = None
    ) -> forms.Webhook:
        """Let a webhook send again.

        Args:
            name: of the webhook.
            skip: only events from now on.
            project: of the webhook, if several projects have the name.
        """
        asked = {"project": project}
        found: forms.Webhook = await self.call(
            "POST", _hook_path(name, "resume"), {"skip": skip}, params=asked
        )
        return found

    async def delete_webhook(self, name: str, *, project: str | None = None) -> None:
        """Delete a webhook; ``project``: its project, if several have the name."""
        await self.call("DELETE", _hook_path(name), params={"project": project})

    # -- the scheduler itself ---------------------------------------------------------------------

    async def version(self) -> forms.Version:
        """Return the versions of the scheduler and of its interface."""
        found: forms.Version = await self.call("GET", "/version")
        return found

    async def alive(self) -> forms.Alive:
        """Ask whether the process answers; needs no token."""
        return cast("forms.Alive", self._read(await self._exchange.ask("GET", "/healthz")))

    async def ready(self) -> forms.Ready:
        """Return whether requests can be served; needs no token."""
        response = await self._exchange.ask("GET", "/readyz", good={503})
        return cast("forms.Ready", self._read(response))

    async def metrics(self) -> str:
        """Return the figures in Prometheus' text format."""
        return (await self._exchange.ask("GET", "/metrics")).text

    async def _act_on_node(self, name: str, action: forms.NodeAction, reason: str) -> forms.Node:
        found: forms.Node = await self.call("POST", _node_path(name, action), {"reason": reason})
        return found


def _node_path(name: str, *rest: str) -> str:
    return path_of("nodes", Named("node", name), *rest)


def _reservation_path(name: str) -> str:
    return path_of("reservations", Named("reservation", name))


def _hook_path(name: str, *rest: str) -> str:
    return path_of("webhooks", Named("webhook", name), *rest)
