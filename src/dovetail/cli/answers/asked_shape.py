"""The options of the command line that describe one pod, as those of `dovetail run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def shape_options(command: F) -> F:
    """The options that describe one pod."""
    options = (
        click.option("-g", "--gpus", type=click.IntRange(0, 32), help="GPUs of the pod."),
        click.option("--type", "gpu_type", metavar="TYPE", default="", help="h100, a100-80gb, ..."),
        click.option("--mig", metavar="PROFILE", default="", help="A MIG slice: 3g.40gb."),
        click.option("--gpu-memory", metavar="AMOUNT", default="", help="A part with that memory."),
        click.option("--cpu", metavar="AMOUNT", default="", help="CPU of the pod: 16."),
        click.option("--memory", metavar="AMOUNT", default="", help="Memory of the pod: 64Gi."),
        click.option("-q", "--queue", metavar="NAME", default="", help="The queue it would use."),
        click.option("--priority", type=int, default=0, help="The priority it would have."),
        click.option("--like", metavar="POD", default="", help="The shape of this pod: ns/name."),
    )
    for option in reversed(options):
        command = option(command)
    return command
