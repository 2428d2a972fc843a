"""The entry point: finds the command, runs it, and turns every ending into an exit code.

0 done, 1 refused or broken, 2 usage. A closed pipe (`| head`) is not an error. An unexpected exception is a defect of
ours and is reported in one line; DOVETAIL_DEBUG=1 shows the traceback.
"""

import os
import sys
from collections.abc import Sequence

import click

from dovetail.cli import lazy, slow_notice

PROGRAM = "dovetail"
STDOUT = 1
REFUSED = 1
COMPLETION = "_DOVETAIL_COMPLETE"  # what the scripts set when a shell asks for completions
DEBUG = "DOVETAIL_DEBUG"
DEFECT = "this is a bug in dovetail, please report it"  # the fuzzers take these words for a failure
MOST_CHARACTERS = 300  # of an unexpected exception
INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C

COMMANDS = {
    "up": ("dovetail.cli.up:command", "Start the embedded cluster from a fleet, and show it."),
    "down": ("dovetail.cli.down:command", "End the embedded cluster; its state is kept."),
    "dashboard": (
        "dovetail.cli.processes.dashboard_command:command",
        "Serve a dashboard of a cluster or a snapshot to a browser.",
    ),
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
    "why": (
        "dovetail.cli.answers.why:command",
        "Say why a pod does not start: cause, numbers, holders, fixes.",
    ),
    "when": (
        "dovetail.cli.answers.when:command",
        "Say when waiting work starts, and how late it may get.",
    ),
    "what-if": (
        "dovetail.cli.answers.what_if:command",
        "Say what more nodes, other quotas or new work would change.",
    ),
    "capacity": (
        "dovetail.cli.answers.capacity_command:command",
        "Say how much more work fits, and what is in the way.",
    ),
    "right-size": (
        "dovetail.cli.answers.right_size_command:command",
        "Say which smaller devices work could use, by what was measured.",
    ),
    "cost": (
        "dovetail.cli.answers.cost_command:command",
        "Say what GPUs cost, who held them, and how budgets stand.",
    ),
    "stack": (
        "dovetail.cli.stack.stack_group:group",
        "Show the GPU stack; check, plan and predict upgrades.",
    ),
    "sim": (
        "dovetail.cli.answers.sim_command:group",
        "Replay a recorded workload through a placement policy.",
    ),
    "tune": (
        "dovetail.cli.answers.tune_command:command",
        "Search policy settings on your own jobs, by simulation.",
    ),
    "run": (
        "dovetail.cli.work.run:command",
        "Run a job on GPUs without YAML: plan, submit, follow.",
    ),
    "queue": (
        "dovetail.cli.work.work_queue:command",
        "Show waiting and running work in the order of the scheduler.",
    ),
    "top": ("dovetail.cli.work.top:command", "Show who uses the GPUs: queues, nodes, types."),
    "wait": ("dovetail.cli.work.wait:command", "Wait until work has started or finished."),
    "logs": ("dovetail.cli.work.work_logs:command", "Print what a pod or a job prints."),
    "cancel": ("dovetail.cli.work.cancel:command", "End work for good: a job, a gang, a pod."),
    "explain": (
        "dovetail.cli.work.explain:command",
        "Explain a field of a resource, or a reason why work waits.",
    ),
    "completion": (
        "dovetail.cli.work.completion:command",
        "Print the completion script of a shell.",
    ),
    "snapshot": (
        "dovetail.cli.snapshot:group",
        "Save a cluster to files, load it back, show what was saved.",
    ),
    "history": (
        "dovetail.cli.processes.history_command:group",
        "Record what happens to GPUs, and look at what was recorded.",
    ),
    "scheduler": (
        "dovetail.cli.processes.scheduler_command:command",
        "Schedule pods on a real Kubernetes, or compare (--shadow).",
    ),
    "node-agent": (
        "dovetail.cli.processes.node_agent_command:command",
        "Serve the GPUs of one node to its kubelet.",
    ),
    "exporter": (
        "dovetail.cli.processes.exporter_command:command",
        "Serve metrics of claims, slices, queues and gangs.",
    ),
    "lifecycle": (
        "dovetail.cli.processes.lifecycle_command:command",
        "Carry out upgrades of the GPU stack.",
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
    "monitoring": (
        "dovetail.cli.views.monitoring_command:group",
        "Print alerts and dashboards for Prometheus and Grafana.",
    ),
    "dev": (
        "dovetail.cli.dev:group",
        "Run a real Kubernetes with hollow GPU nodes on this machine.",
    ),
    "version": ("dovetail.cli.version:command", "Show the version."),
}
# In which order and under which heading `--help` shows them; names that are no commands are left out.
TOPICS = {
    "Look": ("get", "describe", "queue", "top", "dashboard", "logs"),
    "Ask": (
        "why",
        "when",
        "what-if",
        "capacity",
        "cost",
        "right-size",
        "stack",
        "sim",
        "tune",
        "explain",
        "cel",
        "decide",
        "allocate",
    ),
    "Work": ("run", "wait", "cancel"),
    "Change": ("apply", "create", "delete", "migrate"),
    "Operate": (
        "up",
        "down",
        "dev",
        "install",
        "upgrade",
        "uninstall",
        "doctor",
        "monitoring",
        "snapshot",
        "history",
        "scheduler",
        "node-agent",
        "exporter",
        "lifecycle",
        "completion",
        "version",
    ),
}
# Commands of kubectl and Slurm, and what to use instead.
HINTS = {
    "queues": "`dovetail queue` shows what waits and runs, `dovetail get queues` the shares",
    "jobs": "`dovetail queue` shows them",
    "squeue": "`dovetail queue` shows what waits and runs, `dovetail queue --me` mine",
    "sshare": "`dovetail get queues -o wide` shows shares",
    "sprio": "`dovetail queue -o wide` shows priorities and who is ahead",
    "sinfo": "`dovetail get gpus` shows nodes, `dovetail top --by node` who holds them",
    "sbatch": "`dovetail run --detach` submits a job, `dovetail create -f FILE` a manifest",
    "submit": "`dovetail run` submits a job, `dovetail create -f FILE` a manifest",
    "srun": "`dovetail run` submits a job and follows it",
    "salloc": "`dovetail run` starts a job on GPUs; kubectl exec opens a shell in it",
    "scancel": "`dovetail cancel NAME` does",
    "stop": "`dovetail cancel NAME` ends work, `dovetail down` the embedded cluster",
    "scontrol": "`dovetail describe` shows an object, `dovetail apply` changes one",
    "sacct": "`dovetail queue` shows what runs, `dovetail get jobs` what ended and is kept",
    "sattach": "`dovetail logs -f NAME` follows what a job prints",
    "attach": "`dovetail logs -f NAME` follows what a job prints",
    "ps": "`dovetail queue` shows what waits and runs",
    "status": "`dovetail queue NAME` shows it, `dovetail describe` in detail",
    "nvidia-smi": "`dovetail top` shows who holds the GPUs, `dovetail get gpus` the nodes",
}


@click.group(
    cls=lazy.LazyGroup,
    places=COMMANDS,
    hints=HINTS,
    topics=TOPICS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="next: dovetail up",
)
@click.version_option(package_name="dovetail", message="dovetail %(version)s")
def cli() -> None:
    """Gives every AI workload on Kubernetes exactly the GPU capacity it needs."""


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs one command. Returns the exit code; the console script hands it to the shell."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    if COMPLETION in os.environ:
        from dovetail.cli.work import completion

        return completion.complete(os.environ[COMPLETION])
    slow_notice.start(words)
    try:
        with cli.make_context(program, words) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        slow_notice.end()
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
    finally:
        slow_notice.end()
    return 0


def kubectl_plugin() -> int:
    """The program `kubectl-dovetail`: the same commands on the cluster that kubectl would choose."""
    environ = os.environ
    default = os.path.join(environ.get("HOME", ""), ".kube", "config")
    has_choice = environ.get("KUBECONFIG") or environ.get("DOVETAIL_STATE")
    if not has_choice and os.path.isfile(default):
        environ["KUBECONFIG"] = default  # else an embedded cluster would come first
    return main(program=f"kubectl {PROGRAM}")


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
