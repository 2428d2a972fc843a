"""`dovetail dashboard`: serves what runs on the GPUs of a cluster, what waits and why, to a browser and to programs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli import output
from dovetail.cli.cluster import cluster_option

if TYPE_CHECKING:
    import socket

    from dovetail.web import asked
    from dovetail.web import dashboard_settings as settings_
    from dovetail.web.source import captures

LOCAL = "127.0.0.1"
MEANS = ("link", "token", "proxy")
LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Port. [default: any free one]")
@click.option("--address", default=LOCAL, show_default=True, help="Address to listen on.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Let users carry out fixes and submit work, with their own rights.",
)
@click.option(
    "--auth",
    multiple=True,
    type=click.Choice(MEANS),
    help="Who may look: the user of the printed link, holders of a bearer token of the cluster, "
    "users that a proxy names; may repeat. [default: link]",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name that users reach it by, besides localhost and the address; may repeat.",
)
@click.option(
    "--trusted-proxy",
    "networks",
    multiple=True,
    metavar="CIDR",
    help="Where the proxy of --auth proxy connects from; may repeat.",
)
@click.option(
    "--proxy-secret-file",
    metavar="FILE",
    help="The secret that the proxy of --auth proxy sends as Dovetail-Proxy-Secret.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="The bearer token for programs, with --auth link; created if needed. Links survive a restart with it.",
)
@click.option(
    "--session-key-file",
    metavar="FILE",
    help="The key of session cookies; created if needed. Sessions survive a restart with it.",
)
@click.option("--tls-cert", metavar="FILE", help="Certificate chain (PEM), to serve by https.")
@click.option("--tls-key", metavar="FILE", help="Its key (PEM).")
@click.option("--https", is_flag=True, help="A proxy in front ends TLS: cookies are Secure.")
@click.option(
    "--log-format", type=click.Choice(("text", "json")), default="text", show_default=True
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    help="From which level on. [default: info; warning on a terminal]",
)
@click.option(
    "--history",
    metavar="FILE|URL",
    help="History of GPUs, a store or a JSON document: serves what GPUs cost, also at /allocation as OpenCost does.",
)
@click.option(
    "--prices",
    metavar="FILE",
    help="What GPUs cost, with --history; `examples` for placeholders to try it with.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The scheduler's configuration: whose pods, how queues share.",
)
@cluster_option.readable
def command(**given: Any) -> None:
    """Serve the dashboard of a cluster, or of a snapshot, until Ctrl-C.

    Prints a link that signs in once. It listens on this machine only, unless --address says otherwise; beyond it,
    --auth must say who may look. For an embedded cluster whose dashboard runs already, a new link to it is printed.
    """
    if _show_running(given):
        return
    _check(given)
    accounting = _accounting(given)
    from dovetail.web.process import serving

    listener = serving.listening(given["address"], given["port"] or 0)
    with contextlib.closing(listener):
        _serve(given, listener, accounting)


def _show_running(given: dict[str, Any]) -> bool:
    """Prints a link to the dashboard that `up` started, where nothing else was asked for."""
    is_plain = not any(
        value for name, value in given.items() if name not in ("address", "no_open", "log_format")
    )
    if not is_plain or given["address"] != LOCAL or cluster_option.snapshot() is not None:
        return False
    choice = cluster_option.chosen()
    if choice.directory is None:
        return False
    from dovetail.web.process import dashboard_process

    link = dashboard_process.link(choice.directory)
    if not link:
        return False
    _announce(link, is_opened=not given["no_open"])
    return True


def _check(given: dict[str, Any]) -> None:
    """Refuses what would be open to others."""
    from dovetail.boot import http_server

    has_tls = bool(given["tls_cert"])
    if has_tls != bool(given["tls_key"]):
        raise click.UsageError("give --tls-cert and --tls-key together")
    if not http_server.is_loopback(given["address"]) and not given["auth"]:
        raise click.UsageError(
            f"--address {given['address']} can be reached from elsewhere: "
            "say who may look, by --auth token, --auth proxy or --auth link"
        )
    uses_cluster = {"token", "proxy"} & set(given["auth"])
    if uses_cluster and cluster_option.snapshot() is not None:
        raise click.UsageError("--auth token and proxy need a cluster that knows the users' rights")
    if "proxy" not in given["auth"] and (given["networks"] or given["proxy_secret_file"]):
        raise click.UsageError("--trusted-proxy and --proxy-secret-file belong to --auth proxy")


def _accounting(given: dict[str, Any]) -> asked.Accounting | None:
    """Records and prices; a file that cannot be used is said before anything is served."""
    if given["prices"] and not given["history"]:
        raise click.UsageError("--prices are for the records of --history: give both")
    if not given["history"]:
        return None
    from dovetail import errors
    from dovetail.ask import cost_source

    try:
        return cost_source.CostSource(given["history"], given["prices"])
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None


def _serve(
    given: dict[str, Any], listener: socket.socket, accounting: asked.Accounting | None
) -> None:
    import os
    import time

    from dovetail.ask import scheduler_policy
    from dovetail.boot import logs
    from dovetail.web import api_endpoints, application
    from dovetail.web.process import serving
    from dovetail.web.security import link_tokens

    is_terminal = sys.stderr.isatty()
    logs.set_up(given["log_format"], given["log_level"] or ("warning" if is_terminal else "info"))
    boot = os.urandom(4).hex()
    settings = _settings(given, serving.port_of(listener))
    policy = scheduler_policy.configured(given["file"])
    dashboard = application.Dashboard(
        _source(boot),
        api_endpoints.all_endpoints(),
        settings,
        policy_=policy,
        accounting=accounting,
    )
    url = serving.url_of(settings.address, settings.port, is_secure=settings.is_secure)
    if "link" in settings.auth:
        token = link_tokens.link_token(settings.access_token, boot, time.time())
        _announce(f"{url}#token={token}", is_opened=not given["no_open"])
    else:
        output.write_lines([f"dashboard: {url}"])
    _warn_of_clear_text(settings)
    work = serving.serve(
        dashboard.application,
        listener,
        certificate=_path(given["tls_cert"]),
        key=_path(given["tls_key"]),
    )
    asyncio.run(work)


def _settings(given: dict[str, Any], port: int) -> settings_.Settings:
    from dovetail.files import small_files
    from dovetail.web import dashboard_settings as settings_
    from dovetail.web.security import link_tokens, trusted_proxy

    auth = frozenset(given["auth"] or ("link",))
    token_file, key_file = _path(given["token_file"]), _path(given["session_key_file"])
    access_token = link_tokens.kept_in(token_file) if token_file else link_tokens.new()
    session_secret = link_tokens.kept_in(key_file) if key_file else ""
    proxy = None
    if "proxy" in auth:
        secret_file = given["proxy_secret_file"]
        secret = small_files.content(secret_file).decode().strip() if secret_file else ""
        proxy = trusted_proxy.TrustedProxy(networks=given["networks"], secret=secret)
    return settings_.Settings(
        address=given["address"],
        port=port,
        hosts=frozenset(name.lower() for name in given["hosts"]),
        auth=auth,
        access_token=access_token,
        session_secret=session_secret or (access_token if token_file else ""),
        link_user=link_tokens.owner_name() if "link" in auth else "",
        proxy=proxy,
        allow_writes=given["allow_writes"],
        is_secure=bool(given["tls_cert"]) or given["https"],
    )


def _warn_of_clear_text(settings: settings_.Settings) -> None:
    import logging

    from dovetail.boot import http_server

    if settings.is_secure or http_server.is_loopback(settings.address):
        return
    logging.getLogger("dovetail.dashboard").warning(
        "dashboard.insecure: tokens and cookies are sent without TLS beyond this machine",
        extra={"address": settings.address},
    )


def _source(boot: str) -> captures.Source:
    from dovetail.web.source import live_source, snapshot_source, watched_kinds

    path = cluster_option.snapshot()
    if path is not None:
        return snapshot_source.read(str(path), boot=boot)
    choice = cluster_option.chosen()
    options = cluster_option.chosen_options()
    from dovetail.boot import cluster_choice

    return live_source.LiveSource(
        lambda: cluster_choice.choose(options),
        watched_kinds.READS,
        name=choice.name,
        kind="embedded" if choice.is_embedded else "kubernetes",
        boot=boot,
    )


def _announce(link: str, *, is_opened: bool) -> None:
    output.write_lines([f"dashboard: {link}"])
    sys.stdout.flush()
    if is_opened and sys.stdout.isatty():
        import webbrowser

        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(link)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
