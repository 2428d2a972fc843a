"""The entry point: finds the command, runs it, and turns every ending into an exit code.

0 done, 1 refused or broken, 2 usage. A closed pipe (`| head`) is not an error. An unexpected exception is a defect of
ours and is reported in one line; DOVETAIL_DEBUG=1 shows the traceback.
"""

import os
import sys
from collections.abc import Sequence

import click

from dovetail.cli import lazy

STDOUT = 1
REFUSED = 1
COMPLETION = "_DOVETAIL_COMPLETE"  # what click sets when a shell asks for completions
DEBUG = "DOVETAIL_DEBUG"
DEFECT = "this is a bug in dovetail, please report it"  # the fuzzers take these words for a failure
MOST_CHARACTERS = 300  # of an unexpected exception
INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C

COMMANDS = {
    "up": ("dovetail.cli.up:command", "Start the embedded cluster from a fleet, and show it."),
    "down": ("dovetail.cli.down:command", "End the embedded cluster; its state is kept."),
    "get": ("dovetail.cli.get:command", "Show GPUs, devices, claims, pods, queues and more."),
    "apply": (
        "dovetail.cli.apply:command",
        "Create or change objects from YAML or JSON, all or none.",
    ),
    "create": ("dovetail.cli.apply:create", "Create objects from YAML or JSON, all or none."),
    "delete": ("dovetail.cli.delete:command", "Delete objects by name, by label, or of a file."),
    "describe": ("dovetail.cli.describe:command", "Describe objects: devices, reasons, events."),
    "migrate": ("dovetail.cli.migrate:group", "Convert queues of Kueue or KAI, field by field."),
    "cel": ("dovetail.cli.cel:group", "Check and evaluate device selector expressions."),
    "allocate": (
        "dovetail.cli.allocate:command",
        "Answer allocation questions given as small worlds in a file.",
    ),
    "decide": (
        "dovetail.cli.decide:command",
        "Decide scenarios given in a file: who starts, waits, yields.",
    ),
    "when": ("dovetail.cli.when:command", "Say when waiting work starts, and how late it may get."),
    "snapshot": (
        "dovetail.cli.snapshot:group",
        "Save a cluster to files, load it back, show what was saved.",
    ),
    "scheduler": (
        "dovetail.cli.scheduler:command",
        "Schedule pods on a real Kubernetes, or compare (--shadow).",
    ),
    "node-agent": (
        "dovetail.cli.node_agent:command",
        "Serve the GPUs of one node to its kubelet.",
    ),
    "install": (
        "dovetail.cli.install:install",
        "Install the scheduler on a cluster, or print the manifests.",
    ),
    "upgrade": ("dovetail.cli.install:upgrade", "Bring an installation up to date."),
    "uninstall": (
        "dovetail.cli.install:uninstall",
        "Take the scheduler off a cluster, leaving nothing behind.",
    ),
    "doctor": ("dovetail.cli.doctor:command", "Check a cluster and say what to fix."),
    "dev": (
        "dovetail.cli.dev:group",
        "Run a real Kubernetes with hollow GPU nodes on this machine.",
    ),
    "version": ("dovetail.cli.version:command", "Show the version."),
}
# Commands of kubectl and Slurm, and what to use instead.
HINTS = {
    "why": "`dovetail get pods -o wide` says why a pod waits, `dovetail when` for how long",
    "explain": "`dovetail describe pod NAME` says why a pod waits, `dovetail when` for how long",
    "queues": "`dovetail get queues` shows them",
    "squeue": "`dovetail get pods -A` shows what runs and waits, `dovetail when` the starts",
    "sshare": "`dovetail get queues -o wide` shows shares",
    "sinfo": "`dovetail get gpus` shows nodes",
    "scancel": "`dovetail delete pod NAME` does",
    "submit": "`dovetail create -f FILE` does",
    "sbatch": "`dovetail create -f FILE` does",
}


@click.group(
    cls=lazy.LazyGroup,
    places=COMMANDS,
    hints=HINTS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="next: dovetail up",
)
@click.version_option(package_name="dovetail", message="dovetail %(version)s")
def cli() -> None:
    """Gives every AI workload on Kubernetes exactly the GPU capacity it needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code; the console script hands it to the shell."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    if COMPLETION in os.environ:
        cli.main(words, prog_name="dovetail")  # click's own shell completion; leaves by itself
    try:
        with cli.make_context("dovetail", words) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
    except (
        OSError
    ) as error:  # such as a full disk or a removed state directory: not a defect of ours
        _forget_output()
        _say(f"error: {error.filename or 'output'}: {error.strerror or error}")
        return REFUSED
    except MemoryError:
        _say("error: not enough memory for what was given; give less of it at once")
        return REFUSED
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        _say(
            f"error: {DEFECT}: {type(error).__name__}: {_short(str(error))}; {DEBUG}=1 shows the traceback"
        )
        return REFUSED
    return 0


def _say(message: str) -> None:
    from dovetail.cli import output  # nothing of it is needed for help

    output.say(message)


def _short(message: str) -> str:
    """One line of bounded length, because an exception may quote the whole input."""
    line = " ".join(message.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}..."


def _open_what_is_closed() -> None:
    """Redirects streams that the shell closed (`>&-`) to the null device."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - it lives as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _forget_output() -> None:
    """Redirects stdout to the null device, because the interpreter flushes it once more at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDOUT)
    os.close(nowhere)
