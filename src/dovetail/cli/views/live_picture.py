"""The live picture of `dovetail up`: pools of nodes with a tile per GPU, redrawn when the cluster changes.

Ends on q, Ctrl-C, SIGTERM or when the terminal is closed, and always gives the screen back. `dovetail top` is shown the
same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import rich.columns
import rich.console
import rich.live
import rich.segment
import rich.text

from dovetail.ask import api_session, followed_objects
from dovetail.cli import slow_notice
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.model import plaintext
from dovetail.sim.fleet import fleet_objects
from dovetail.tables import text
from dovetail.tables.gpus import gpu_tiles

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

TICK_SECONDS: Final = (
    0.2  # between two drawings at least, and between two looks at the screen's size
)
MOST_WAITING: Final = 5  # pending pods that are named
KINDS: Final = (registry.NODE, registry.SLICE, registry.CLAIM, registry.POD)
_STYLES: Final = {
    "□": "green",
    "▤": "cyan",
    "▥": "yellow",
    "◧": "yellow",
    "■": "red",
    "▨": "bright_black",
    "▣": "magenta",
}
_LOCAL_FLAGS: Final = 3  # their place in what tcgetattr returns
_LEAVE: Final = frozenset({b"q", b"Q", b"\x03", b"\x04", b""})


class Draw(Protocol):
    """Draws objects; with a note about what is wrong with the view, in so many rows of the screen."""

    def __call__(
        self, objects: object_set.ObjectSet, *, note: str, rows: int | None
    ) -> Drawing: ...


def watch(choice: cluster_choice.Choice, *, dashboard: str = "") -> None:
    """Shows the cluster until the user leaves, and where its dashboard is."""
    show(choice, KINDS, functools.partial(drawing, dashboard=dashboard))


def show(choice: cluster_choice.Choice, kinds: Sequence[registry.Kind], draw: Draw) -> None:
    """Shows what is drawn of these kinds until the user leaves."""
    with _keys() as keyboard:
        api_session.run(choice, lambda over: _watch(over, choice.name, keyboard, kinds, draw))


async def _watch(
    over: transport.Transport,
    name: str,
    keyboard: int,
    kinds: Sequence[registry.Kind],
    draw: Draw,
) -> None:
    leaving = _leaving(keyboard)
    objects = followed_objects.FollowedObjects(name)
    console = rich.console.Console(file=sys.stdout, highlight=False)
    view = rich.live.Live(
        draw(object_set.ObjectSet(name), note="", rows=None),
        console=console,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    slow_notice.end()
    try:
        view.start(refresh=True)
        first = asyncio.create_task(objects.follow(over, tuple(map(object_set.Read, kinds))))
        await asyncio.wait(
            [first, asyncio.create_task(leaving.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        await _follow(objects, view, leaving, draw)
    finally:
        view.stop()  # also after an interrupted start, to restore the screen
        await objects.close()


async def _follow(
    objects: followed_objects.FollowedObjects,
    view: rich.live.Live,
    leaving: asyncio.Event,
    draw: Draw,
) -> None:
    """Redraws when the cluster or the terminal's size changes, until a key or a signal ends it."""
    drawn_size = None
    while not leaving.is_set():
        size = view.console.size
        if objects.changed.is_set() or size != drawn_size:
            drawn_size = size
            objects.changed.clear()
            picture = draw(objects.now(), note=objects.trouble, rows=size.height)
            view.update(picture, refresh=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leaving.wait(), TICK_SECONDS)


def _leaving(keyboard: int) -> asyncio.Event:
    """Set by a key, a signal, or the end of the terminal."""
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read_key() -> None:
        try:
            key = os.read(keyboard, 1)
        except OSError:
            key = b""
        if key in _LEAVE:
            leaving.set()
            loop.remove_reader(keyboard)

    loop.add_reader(keyboard, read_key)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leaving.set)
    return leaving


class Drawing:
    """Everything on the screen. Where it is too small, rows of nodes give way, and a line says how many."""

    def __init__(
        self,
        head: Sequence[rich.console.RenderableType],
        body: Sequence[rich.console.RenderableType],
        foot: Sequence[rich.console.RenderableType],
        *,
        rows: int | None,
    ) -> None:
        self._head = rich.console.Group(*head)
        self._body = rich.console.Group(*body)
        self._foot = rich.console.Group(*foot)
        self._rows = rows

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        parts = (self._head, self._body, self._foot)
        unbounded = options.reset_height()
        head, body, foot = (console.render_lines(part, unbounded, pad=False) for part in parts)
        if self._rows is not None:
            room = max(1, self._rows - len(head) - len(foot))
            if len(body) > room:
                hidden = len(body) - room + 1
                message = f"{text.counted(hidden, 'row')} more; dovetail get gpus shows all"
                note = rich.text.Text(message, style="bold")
                body = [*body[: room - 1], *console.render_lines(note, unbounded, pad=False)]
        for number, line in enumerate((*head, *body, *foot)):
            if number:
                yield rich.segment.Segment.line()
            yield from line


def drawing(
    objects: object_set.ObjectSet, *, note: str = "", rows: int | None = None, dashboard: str = ""
) -> Drawing:
    """Who waits first, then pools, nodes and tiles, then the legend; in so many rows of the screen."""
    nodes = gpu_tiles.nodes_with_gpus(objects)
    by_pool: dict[str, list[gpu_tiles.NodeGpus]] = {}
    for node in nodes:
        by_pool.setdefault(node.pool, []).append(node)
    head: list[rich.console.RenderableType] = [_title(objects, nodes), ""]
    head += _waiting_lines(objects)
    body: list[rich.console.RenderableType] = []
    for pool, members in by_pool.items():
        body += [
            _pool_line(pool, members),
            rich.columns.Columns([_node(member) for member in members], padding=(0, 3)),
            "",
        ]
    foot: list[rich.console.RenderableType] = [_shown(gpu_tiles.LEGEND)]
    if note:
        foot.append(rich.text.Text(plaintext.escaped(note), style="red"))
    if dashboard:
        foot.append(rich.text.Text(f"dashboard: {dashboard}", style="bold", no_wrap=True))
    foot.append(
        rich.text.Text("q leaves; another terminal can run: dovetail apply -f FILE", style="dim")
    )
    return Drawing(head, body, foot, rows=rows)


def _title(objects: object_set.ObjectSet, nodes: list[gpu_tiles.NodeGpus]) -> rich.text.Text:
    gpus = [gpu for node in nodes for gpu in node.gpus]
    free = sum(gpu.state in (gpu_tiles.FREE, gpu_tiles.PARTS) for gpu in gpus)
    claims = objects.count("ResourceClaim")
    return rich.text.Text.assemble(
        (f"cluster {plaintext.escaped(objects.cluster)}", "bold"),
        f"   {text.counted(len(nodes), 'node')}   {free} of {text.counted(len(gpus), 'GPU')} free"
        f"   {text.counted(claims, 'claim')}   revision {objects.revision}",
        overflow="ellipsis",
        no_wrap=True,
    )


def _waiting_lines(objects: object_set.ObjectSet) -> list[rich.console.RenderableType]:
    """The first pods that wait, with their reasons."""
    structs = [stored.struct for stored in objects.listed("Pod")]
    waiting = [pod for pod in structs if isinstance(pod, pods.Pod) and _waits(pod)]
    if not waiting:
        return []
    lines: list[rich.console.RenderableType] = [f"{text.counted(len(waiting), 'pod')} waiting"]
    for pod in waiting[:MOST_WAITING]:
        reasons = [each.message for each in pod.status.conditions if each.type == "PodScheduled"]
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        line = plaintext.escaped(f"  {name}: {reasons[0] if reasons else 'not decided yet'}")
        lines.append(rich.text.Text(line, overflow="ellipsis", no_wrap=True, style="dim"))
    if len(waiting) > MOST_WAITING:
        lines.append(rich.text.Text(f"  and {len(waiting) - MOST_WAITING} more", style="dim"))
    return [*lines, ""]


def _waits(pod: pods.Pod) -> bool:
    return not pod.spec.node_name and pod.status.phase not in pods.TERMINAL_PHASES


def _pool_line(pool: str, members: list[gpu_tiles.NodeGpus]) -> rich.text.Text:
    first = members[0]
    inside = f"{text.counted(len(members), 'node')} of {len(first.gpus)} x {first.products}, {first.offers}"
    cliques = len({member.label(fleet_objects.CLIQUE_LABEL) for member in members} - {""})
    linked = f", {text.counted(cliques, 'NVLink domain')}" if cliques else ""
    return rich.text.Text.assemble(
        (plaintext.escaped(pool), "bold"), f"   {plaintext.escaped(inside)}{linked}"
    )


def _node(node: gpu_tiles.NodeGpus) -> rich.text.Text:
    return rich.text.Text.assemble((plaintext.escaped(node.name) + " ", "dim"), _shown(node.tiles))


def _shown(tiles: str) -> rich.text.Text:
    if not gpu_tiles.can_show_tiles(sys.stdout):
        return rich.text.Text(gpu_tiles.ascii_only(tiles))
    drawn = rich.text.Text()
    for sign in tiles:
        drawn.append(sign, style=_STYLES.get(sign, ""))
    return drawn


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Standard input key by key, restored afterwards."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        # Ctrl-C would drop keys that the loop has seen and not read yet, and its read would wait for another one.
        mode = termios.tcgetattr(keyboard)
        mode[_LOCAL_FLAGS] |= termios.NOFLSH
        termios.tcsetattr(keyboard, termios.TCSADRAIN, mode)
        yield keyboard
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
