"""``leasehold policy``: show or change the policy in force."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.cli.display.output import format_pairs, print_json, print_remark, print_shown, table
from leasehold.cli.reading.pairs import parse_pairs
from leasehold.cli.session.completion import complete_policy
from leasehold.cli.session.groups import group_with_default
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.wording import wording_of
from scheduler.errors import InputError, NotFoundError
from scheduler.views.times import format_ago, format_span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Policy, PolicyTrial, Round

app = typer.Typer(
    help="Show the policy in force, or switch it.",
    cls=group_with_default("show"),
)


@app.command("show")
@remote
def show(service: ServiceClient, *, as_json: Json = False) -> None:
    """Show the policy in force."""
    _show(service.policy(), as_json=as_json)


@app.command("list")
@remote
def list_policies(service: ServiceClient, *, as_json: Json = False) -> None:
    """List the policies that the scheduler knows."""
    found = service.policies()
    if as_json:
        print_json({"policies": found})
        return
    rows = [
        (p["name"], p["summary"], ", ".join(x["name"] for x in p["parameters"]), p["origin"])
        for p in found
    ]
    headings = ("policy", "meaning", "parameters", "from")
    print_shown(table(headings, rows, spare=("from",), wrapped=True))


@app.command("set")
@remote
def set_policy(
    service: ServiceClient,
    name: Annotated[str, typer.Argument(help="The policy.", autocompletion=complete_policy)],
    *,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="Repeatable.")
    ] = None,
    agnostic: Annotated[
        bool, typer.Option("--agnostic", help="Hide from it that worker types differ.")
    ] = False,
    space_sharing: Annotated[
        bool, typer.Option("--space-sharing", help="Let two jobs share workers.")
    ] = False,
    packed: Annotated[bool, typer.Option("--packed", hidden=True)] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what it would change in the next round, and stop."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Put a policy in force, without a restart."""
    parameters = parse_pairs(param or [], option="--param")
    shared = space_sharing or packed
    if packed:
        print_remark("--packed is called --space-sharing now, as everywhere else; use that")
    service.wording = wording_of(name="the policy")
    try:
        if dry_run:
            trial = service.try_policy(name, parameters, agnostic=agnostic, space_sharing=shared)
            _show_trial(trial, as_json=as_json)
            return
        found = service.set_policy(name, parameters, agnostic=agnostic, space_sharing=shared)
    except InputError as error:
        wrong_form = getattr(error, "__notes__", None)  # the fields of the request, one a line
        if not wrong_form and name not in {known["name"] for known in service.policies()}:
            raise NotFoundError(str(error)) from None
        raise
    _show(found, as_json=as_json)


def _show_trial(trial: PolicyTrial, *, as_json: bool) -> None:
    if as_json:
        print_json(trial)
        return
    if trial["note"]:
        print_shown(f"no answer: {trial['note']}")
        return
    rows = [
        (one["job_id"], one["project"], _held(one["before"]), _held(one["after"]))
        for one in trial["changes"]
    ]
    if rows:
        headings = ("job", "project", "holds in the next round", "would hold")
        print_shown(table(headings, rows, spare=("project",)))
    moved, kept = (f"{n} job{'' if n == 1 else 's'}" for n in (len(rows), trial["same"]))
    print_shown(f"{moved} would hold other workers; {kept} would hold the same")


def _held(workers: Mapping[str, int]) -> str:
    return " + ".join(f"{count} x {name}" for name, count in workers.items()) or "-"


def _show(policy: Policy, *, as_json: bool) -> None:
    if as_json:
        print_json(policy)
        return
    flags = [
        word
        for word, on in (
            ("agnostic", policy["agnostic"]),
            ("space sharing", policy["space_sharing"]),
        )
        if on
    ]
    facts = (
        ("policy", ", ".join([policy["name"], *flags])),
        ("parameters", format_pairs(policy["parameters"])),
        ("in force for", format_ago(policy["since_s"], time.time())),
        ("set by", policy["actor"]),
        ("last solve", "" if policy["last_solve_s"] is None else _took(policy["last_solve_s"])),
        ("last failure", policy["last_failure"]),
        ("last round", _round(policy.get("last_round"))),
    )
    print_shown(table(("field", "=value"), [fact for fact in facts if fact[1]]))


def _round(last: Round | None) -> str:
    """Return the quality of a round as text; empty if the service sends none."""
    if last is None:
        return ""
    distance = f"{last['off_rounds']:.1f} rounds from X, {last['behind_rounds']:.1f} behind at most"
    if last["gap"] is None or last["fluid_gap"] is None:
        return distance
    return (
        f"within {100 * last['gap']:.2f} % of the best, {100 * last['fluid_gap']:.2f} % with "
        f"divided workers; {distance}"
    )


def _took(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else format_span(seconds)
