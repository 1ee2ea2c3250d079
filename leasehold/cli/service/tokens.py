"""``leasehold token``: tokens and their permissions."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from leasehold.cli.display.output import print_json, print_remark, print_shown, table
from leasehold.cli.reading.pairs import parse_workers, split_list
from leasehold.cli.session.completion import complete_node
from leasehold.cli.session.each import do_to_each
from leasehold.cli.session.groups import group_with_default
from leasehold.cli.session.near_names import remark_on_projects
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.secret_files import Out, private_file
from scheduler.views.times import format_ago, format_moment, parse_span

if TYPE_CHECKING:
    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Enrolment, NewToken, Token

app = typer.Typer(
    help="Make, list and revoke tokens; enrol agents.", cls=group_with_default("list")
)


@app.command("list")
@remote
def list_tokens(service: ServiceClient, *, as_json: Json = False) -> None:
    """List tokens, without their secrets."""
    found = service.tokens()
    if as_json:
        print_json({"tokens": found})
        return
    now_s = time.time()
    headings = ("token", "subject", "role", "projects", "state", ">made", ">used", ">expires")
    rows = [
        (
            t["token_id"],
            t["subject"],
            t["role"],
            ",".join(t["projects"]) or "all",
            _state(t, now_s),
            format_ago(t["created_s"], now_s),
            format_ago(t["last_used_s"], now_s),
            format_ago(t["expires_s"], now_s),
        )
        for t in found
    ]
    spare = ("made", "used")
    print_shown(table(headings, rows, spare=spare, wrapped=True) if rows else "no tokens")


@app.command("create")
@remote
def create(
    service: ServiceClient,
    subject: Annotated[str, typer.Argument(help="The user, or the node for role agent.")],
    *,
    role: Annotated[
        str, typer.Option("--role", help="viewer, user, operator, admin, agent or metrics.")
    ] = "user",
    project: Annotated[
        list[str] | None,
        typer.Option("--project", "-p", metavar="A[,B...]", help="Only these; all by default."),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", metavar="SPAN", help="Until it expires; never by default."),
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it, this once."""
    fields: Any = {
        "subject": subject,
        "role": role,
        "projects": split_list(project or [], option="--project"),
        "ttl_s": None if ttl is None else parse_span(ttl, name="--ttl"),
    }
    with private_file(out) as file:
        remark_on_projects(service, fields["projects"])
        made = service.create_token(**fields)
        what = f"token {made['token_id']} of {subject}"
        _show_secret(made, made["token"], what, file=file, as_json=as_json)


@app.command("revoke")
@remote
def revoke(
    service: ServiceClient,
    token_ids: Annotated[list[str], typer.Argument(metavar="TOKEN...", help="Ids of tokens.")],
    *,
    as_json: Json = False,
) -> None:
    """Revoke tokens, by their ids."""
    do_to_each(token_ids, service.revoke_token, done="revoked", as_json=as_json)


@app.command("enrol")
@remote
def enrol(
    service: ServiceClient,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="The only node that may use it; any by default.",
            autocompletion=complete_node,
            show_default=False,
        ),
    ] = None,
    *,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="SPAN", help="For how long it can be used.")
    ] = "1h",
    worker: Annotated[
        list[str] | None,
        typer.Option(
            "--worker",
            metavar="TYPE:COUNT",
            help="The workers that the node may have, such as v100:4, and no others; those that "
            "it reports first by default. Repeatable.",
        ),
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Make a secret with which an agent joins, and print it, this once."""
    ttl_s = parse_span(ttl, name="--ttl")
    workers = parse_workers(worker or [], option="--worker")
    with private_file(out) as file:
        fields: Any = {"node": node, "ttl_s": ttl_s}
        if workers:  # a scheduler of the previous release does not know them
            fields["workers"] = workers
        made = service.enrol(**fields)
        what = f"for {node or 'any node'}, until {format_moment(made['expires_s'])}"
        _show_secret(made, made["secret"], what, file=file, as_json=as_json)


@app.command("whoami")
@remote
def whoami(service: ServiceClient, *, as_json: Json = False) -> None:
    """Show your token's owner and rights."""
    found = service.whoami()
    if as_json:
        print_json(found)
        return
    projects = ", ".join(found["projects"]) or "all projects"
    print_shown(f"{found['subject']} ({found['role']}, {projects})")


def _show_secret(
    made: Enrolment | NewToken, secret: str, what: str, *, file: IO[str] | None, as_json: bool
) -> None:
    if file is not None:
        file.write(secret + "\n")
        kept = {k: v for k, v in made.items() if k not in {"secret", "token"}}
        if as_json:
            print_json(kept)
        else:
            print_remark(f"{what}; the secret is in the file, and nowhere else")
        return
    if as_json:
        print_json(made)
        return
    print_remark(f"{what}; it is shown this once:")
    typer.echo(secret)


def _state(token: Token, now_s: float) -> str:
    if token["revoked_s"] is not None:
        return "revoked"
    expired = token["expires_s"] is not None and token["expires_s"] <= now_s
    return "expired" if expired else "good"
