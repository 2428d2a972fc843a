"""Chooses the cluster that a command works on, as kubectl would, the embedded one included.

In this order: --kubeconfig or --context; --state or $DOVETAIL_STATE; $KUBECONFIG; the embedded cluster of the default
state directory, if there is one; ~/.kube/config; the pod we run in. Given options and the environment. Never connects,
never starts anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors
from dovetail.files import state_directory
from dovetail.kube.auth import client_config

_CONTEXT: Final = re.compile(r'context "(?P<name>.*)"$')


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about the cluster."""

    kubeconfig: str | None = None
    context: str | None = None
    state: str | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster: how to reach it, and how messages name it. `directory` is set for the embedded one."""

    connection: client_config.Connection
    name: str
    directory: Path | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether it is a process of ours on this machine."""
        return self.directory is not None


def choose(options: Options, environ: Mapping[str, str] = os.environ) -> Choice:
    """The cluster. Raises InputError or StateError with the next step where there is none."""
    if options.kubeconfig is not None or options.context is not None:
        if options.state is not None:
            raise errors.InputError(
                "--state names the embedded cluster, --kubeconfig and --context another; give one"
            )
        return _reached_by(
            client_config.load(options.kubeconfig, context=options.context, environ=environ)
        )
    directory = state_directory.state_directory(options.state, environ)
    if options.state or environ.get(state_directory.STATE_VARIABLE):
        return embedded(directory)
    if environ.get("KUBECONFIG"):
        return _reached_by(client_config.load(None, environ=environ))
    if state_directory.has_state(directory):
        return embedded(directory)
    home = environ.get("HOME", "")
    has_default = bool(home) and (Path(home) / ".kube" / "config").is_file()
    if has_default or environ.get("KUBERNETES_SERVICE_HOST"):
        return _reached_by(client_config.load(None, environ=environ))
    raise errors.StateError(
        f"no cluster: none is embedded in {directory}, and there is no kubeconfig\n"
        "next: dovetail up"
    )


def embedded(directory: Path) -> Choice:
    """The embedded cluster of a state directory. It must run."""
    if not state_directory.has_state(directory):
        raise errors.StateError(f"no cluster in {directory}\nnext: dovetail up")
    if state_directory.running_pid(directory) is None:
        raise errors.StateError(
            f"the embedded cluster in {directory} is not running; its state is kept\n"
            "next: dovetail up"
        )
    connection = client_config.load(str(directory / state_directory.KUBECONFIG))
    return Choice(
        connection=connection,
        name=f"embedded {state_directory.cluster_name(directory)}",
        directory=directory,
    )


def _reached_by(connection: client_config.Connection) -> Choice:
    context = _CONTEXT.search(connection.origin)
    how = f"context {context['name']}" if context else connection.origin
    return Choice(connection=connection, name=f"{connection.server} ({how})")
