"""``leasehold page``: a link that opens the scheduler's page, signed in."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.cli.display.output import print_json, print_remark, print_shown
from leasehold.cli.session.remote import Json, remote

if TYPE_CHECKING:
    from leasehold.cli.session.client import ServiceClient


@remote
def page(
    service: ServiceClient,
    *,
    in_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser here.")] = False,
    as_json: Json = False,
) -> None:
    """Print a link that opens the page in a browser, signed in as you; it is valid once."""
    made = service.sign_in_code()
    link = service.server.rstrip("/") + made["path"]
    if as_json:
        print_json({"link": link, "valid_s": made["valid_s"]})
    else:
        print_shown(link)
        if made["valid_s"]:
            print_remark(f"it signs in as you, once, within {made['valid_s']:.0f} s")
    if in_browser and not webbrowser.open(link):
        print_remark("no browser was found here; open the link in one")
