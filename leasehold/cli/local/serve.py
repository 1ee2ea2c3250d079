"""``leasehold serve``: run the daemon."""

from __future__ import annotations

import asyncio

import uvloop

from leasehold import __version__
from leasehold.cli import serve_options as given  # noqa: TC001  typer reads the annotations
from leasehold.cli.serve_options import exits_clearly, make_config, print_note
from leasehold.daemon.process.stopping import stop_on_signals
from leasehold.daemon.serve import banner
from leasehold.daemon.serve import serve as run_daemon


def serve(
    *,
    config: given.ConfigFile = None,
    host: given.Host = None,
    port: given.Port = None,
    state_dir: given.StateDirectory = None,
    db: given.Database = None,
    policy: given.PolicyName = None,
    param: given.PolicyParameters = None,
    round_length: given.RoundLength = None,
    throughputs: given.Throughputs = None,
    no_auth: given.NoAuth = None,
    tls_cert: given.Certificate = None,
    tls_key: given.Key = None,
    log_level: given.LogLevel = None,
    log_json: given.LogJson = None,
    after_restore: given.AfterRestore = False,
    after_clock_set_back: given.AfterClockSetBack = False,
    settings: given.Settings = None,
) -> None:
    """Run the scheduler: serve the REST interface, and schedule or stand by.

    Every setting can also come from a TOML file or the environment: see `leasehold config`.
    SIGTERM and Ctrl-C stop it gracefully, a second one at once.
    """
    chosen = make_config(
        path=config,
        flags={
            "server.host": ("--host", host),
            "server.port": ("--port", port),
            "state_dir": ("--state-dir", state_dir),
            "store.url": ("--db", db),
            "policy.name": ("--policy", policy),
            "engine.round_length_s": ("--round-length", round_length),
            "throughputs.path": ("--throughputs", throughputs),
            "server.no_auth": ("--no-auth", no_auth),
            "server.tls_cert": ("--tls-cert", tls_cert),
            "server.tls_key": ("--tls-key", tls_key),
            "log.level": ("--log-level", log_level),
            "log.json": ("--log-json", log_json),
        },
        parameters=param or (),
        settings=settings or (),
    )

    async def run() -> None:
        stop = asyncio.Event()
        with stop_on_signals(stop):
            await run_daemon(
                chosen,
                stop=stop,
                version=__version__,
                after_restore=after_restore,
                after_set_back=after_clock_set_back,
                started=lambda running: print_note(banner(chosen, running, version=__version__)),
            )

    with exits_clearly():
        uvloop.run(run())
