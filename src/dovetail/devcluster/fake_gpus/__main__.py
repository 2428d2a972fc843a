"""The command line of the fake GPUs: make a machine, look at it, break it, mend it."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from dovetail import errors
from dovetail.devcluster.fake_gpus import gpu_machines, hardware, load_script

DIRECTORY = click.argument("directory", type=click.Path(path_type=Path))
GPU = click.argument("gpu", type=int)


@click.group()
def cli() -> None:
    """GPUs that exist in a directory. NVIDIA's programs find them through its driver root."""


@cli.command()
@DIRECTORY
@click.option("--machine", default="dgx-h100", show_default=True, help="A name, or a file.")
@click.option("--gpus", type=int, help="How many; the machine's usual number if left out.")
@click.option("--driver-version", default=hardware.DRIVER_VERSION, show_default=True)
@click.option("--cuda-version", default=hardware.CUDA_VERSION, show_default=True)
@click.option("--mig/--no-mig", default=False, help="MIG mode on from the start.")
@click.option("--name", help="Tells machines of a kind apart: UUIDs follow it.")
def make(
    directory: Path,
    machine: str,
    gpus: int | None,
    driver_version: str,
    cuda_version: str,
    mig: bool,
    name: str | None,
) -> None:
    """Make a machine."""
    made = hardware.Hardware.create(
        directory,
        machine=machine,
        gpus=gpus,
        driver_version=driver_version,
        cuda_version=cuda_version,
        mig=mig,
        name=name,
    )
    click.echo(f"next: {made.nvidia_smi} -L", err=True)


@cli.command()
def machines() -> None:
    """List the machines that can be made."""
    for name, machine in sorted(gpu_machines.MACHINES.items()):
        click.echo(f"{name:12} {len(machine.slots)} x {machine.board}")


@cli.command()
@DIRECTORY
def show(directory: Path) -> None:
    """Print the whole state as JSON."""
    state = hardware.Hardware.open(directory).snapshot()
    click.echo(msgspec.json.format(msgspec.json.encode(state), indent=2))


@cli.command()
@DIRECTORY
@GPU
@click.argument("code", type=int)
def xid(directory: Path, gpu: int, code: int) -> None:
    """Inject an XID error."""
    hardware.Hardware.open(directory).inject_xid(gpu, code)


@cli.command()
@DIRECTORY
@GPU
def lose(directory: Path, gpu: int) -> None:
    """Let a GPU fall off the bus."""
    hardware.Hardware.open(directory).lose(gpu)


@cli.command()
@DIRECTORY
@GPU
def restore(directory: Path, gpu: int) -> None:
    """Bring a lost GPU back."""
    hardware.Hardware.open(directory).restore(gpu)


@cli.command("set")
@DIRECTORY
@GPU
@click.argument("figure")
@click.argument("value")
def set_figure(directory: Path, gpu: int, figure: str, value: str) -> None:
    """Set a figure of a GPU, such as temperature or gpu_utilisation."""
    hardware.Hardware.open(directory).set(gpu, **{figure: value})


@cli.command()
@DIRECTORY
@click.argument("script", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def load(directory: Path, script: Path) -> None:
    """Play a script of load: how busy GPUs and processes are, over time."""
    steps = load_script.read(script.read_bytes())
    load_script.play(hardware.Hardware.open(directory), steps)


def main() -> None:
    """Runs the command line; what the hardware refuses is a message and exit code 1."""
    try:
        cli()
    except errors.DovetailError as refused:
        print(f"error: {refused}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
