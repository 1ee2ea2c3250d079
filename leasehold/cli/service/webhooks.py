"""``leasehold webhook``: addresses that receive events."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from leasehold.cli.display.output import print_json, print_remark, print_shown, table
from leasehold.cli.reading.pairs import split_list
from leasehold.cli.session.each import do_to_each
from leasehold.cli.session.groups import group_with_default
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.secret_files import Out, private_file
from leasehold.cli.session.wording import wording_of
from scheduler.views.times import format_ago, format_when

if TYPE_CHECKING:
    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Webhook

OfProject: TypeAlias = Annotated[
    str | None,
    typer.Option("--project", "-p", help="Its project, if several projects have the name."),
]
#: Exit code of a test message that was not accepted.
NOT_TAKEN = 1

app = typer.Typer(
    help="Register, list, test, resume and delete webhooks.", cls=group_with_default("list")
)


@app.command("list")
@remote
def list_webhooks(service: ServiceClient, *, as_json: Json = False) -> None:
    """List webhooks: their address, their events, and whether they get through."""
    found = service.webhooks()
    if as_json:
        print_json({"webhooks": found})
        return
    now_s = time.time()
    headings = ("webhook", "to", "project", "on", "state", ">sent", ">last", "problem")
    rows = [
        (
            hook["name"],
            hook["place"],
            hook["project"] or "all",
            ",".join(hook["on"]),
            _state(hook, now_s),
            str(hook["delivered"]),
            format_ago(hook["delivered_s"], now_s),
            hook["problem"],
        )
        for hook in found
    ]
    spare = ("sent", "last")
    print_shown(table(headings, rows, spare=spare, wrapped=True) if rows else "no webhooks")


@app.command("add")
@remote
def add(
    service: ServiceClient,
    name: Annotated[str, typer.Argument(help="By which you list, test and delete it.")],
    *,
    url: Annotated[
        str,
        typer.Option("--url", metavar="URL", help="Address that it sends to: https://host/path."),
    ],
    on: Annotated[
        list[str],
        typer.Option(
            "--on", metavar="KIND[,KIND...]", help="Kinds of events, such as job.failed,node.lost."
        ),
    ],
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="Only events of its jobs; all events by default."),
    ] = None,
    template: Annotated[
        str, typer.Option("--template", help="json, or slack for Slack's incoming webhooks.")
    ] = "json",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Register an address, and print the secret of its signatures, this once.

    The first events that are sent are those that happen from now on.
    """
    kinds = split_list(on, option="--on")
    service.wording = wording_of(name="the name", url="--url", on="--on", template="--template")
    fields: Any = {"on": kinds, "project": project, "template": template}
    with private_file(out) as file:
        made = service.create_webhook(name, url, **fields)
        if file is not None:
            file.write(made["secret"] + "\n")
            kept = {key: value for key, value in made.items() if key != "secret"}
            print_remark(f"webhook {name}; its secret is in the file, and nowhere else")
            if as_json:
                print_json(kept)
            return
    if as_json:
        print_json(made)
        return
    print_remark(f"webhook {name} sends to {made['place']}; its secret is shown this once:")
    typer.echo(made["secret"])


@app.command("test")
@remote
def send_test(
    service: ServiceClient,
    name: Annotated[str, typer.Argument(help="Of the webhook.")],
    *,
    project: OfProject = None,
    as_json: Json = False,
) -> None:
    """Send a test message; exits with 1 if it is not accepted."""
    found = service.test_webhook(name, project=project)
    if as_json:
        print_json(found)
    elif found["delivered"]:
        print_shown(f"webhook {name}: taken, status {found['status']}")
    else:
        print_shown(f"webhook {name}: not taken: {found['problem']}")
    if not found["delivered"]:
        raise typer.Exit(NOT_TAKEN)


@app.command("resume")
@remote
def resume(
    service: ServiceClient,
    name: Annotated[str, typer.Argument(help="Of the webhook.")],
    *,
    skip: Annotated[bool, typer.Option("--skip", help="Skip events until now.")] = False,
    project: OfProject = None,
    as_json: Json = False,
) -> None:
    """Let a webhook that is paused or failing send again, at once."""
    found = service.resume_webhook(name, skip=skip, project=project)
    if as_json:
        print_json(found)
        return
    print_shown(f"webhook {name} sends again" + (", from now on" if skip else ""))


@app.command("delete")
@remote
def delete(
    service: ServiceClient,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Of the webhooks.")],
    *,
    project: OfProject = None,
    as_json: Json = False,
) -> None:
    """Delete webhooks; their unsent messages are dropped."""
    do_to_each(
        names, partial(service.delete_webhook, project=project), done="deleted", as_json=as_json
    )


def _state(hook: Webhook, now_s: float) -> str:
    if hook["paused_s"] is not None:
        return f"paused {format_ago(hook['paused_s'], now_s)}"
    if hook["failures"]:
        return f"failing {hook['failures']}x, again {format_when(hook['next_s'], now_s)}"
    return "ok"
