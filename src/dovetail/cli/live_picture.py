"""The live picture of `dovetail up`: pools of nodes with a tile per GPU, redrawn when the state changes.

Ends on q, Ctrl-C or when the terminal is closed. Only this module uses rich.
"""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Final

import rich.columns
import rich.console
import rich.live
import rich.text

from dovetail import errors
from dovetail.cli.tables import gpu_tiles, text
from dovetail.kubetypes import object_set
from dovetail.model import plaintext
from dovetail.sim.fleet import fleet_objects
from dovetail.sim.local import local_cluster, state_dir

TICK_SECONDS: Final = 0.2
_STYLES: Final = {"□": "green", "▤": "cyan", "▥": "yellow", "■": "red"}
_LEAVE: Final = frozenset({b"q", b"Q", b"\x03", b"\x04", b""})


def watch(opened: state_dir.Local, cluster: local_cluster.Cluster) -> None:
    """Shows the cluster until the user leaves."""
    console = rich.console.Console(file=sys.stdout, highlight=False)
    view = rich.live.Live(drawing(cluster), console=console, screen=True, auto_refresh=False)
    with _keys() as keyboard, contextlib.suppress(KeyboardInterrupt):
        try:
            view.start(refresh=True)
            _follow(opened, cluster, view=view, keyboard=keyboard)
        finally:
            view.stop()  # also after an interrupted start, to restore the screen


def _follow(
    opened: state_dir.Local, cluster: local_cluster.Cluster, *, view: rich.live.Live, keyboard: int
) -> None:
    """Redraws when the state, the terminal's size or a pod's phase changes, until a key ends it."""
    drawn_stamp = None
    while not _wants_to_leave(keyboard):
        now = (opened.store.stamp(), view.console.size)
        if now == drawn_stamp and not opened.is_due(cluster):
            continue
        drawn_stamp, note = now, ""
        try:
            cluster = opened.cluster() or cluster
        except errors.StateError as error:  # shown, not fatal: the next write may be readable again
            note = str(error)
        view.update(drawing(cluster, note=note), refresh=True)


def drawing(cluster: local_cluster.Cluster, *, note: str = "") -> rich.console.Group:
    """Everything on the screen: pools, nodes, tiles, legend."""
    by_pool: dict[str, list[gpu_tiles.NodeGpus]] = {}
    objects = local_cluster.objects_of(cluster)
    for node in gpu_tiles.nodes_with_gpus(objects):
        by_pool.setdefault(node.pool, []).append(node)
    parts: list[rich.console.RenderableType] = [_title(objects), ""]
    for pool, members in by_pool.items():
        parts += [
            _pool_line(pool, members),
            rich.columns.Columns([_node(member) for member in members], padding=(0, 3)),
            "",
        ]
    parts.append(_shown(gpu_tiles.LEGEND))
    if note:
        parts.append(rich.text.Text(plaintext.escaped(note), style="red"))
    parts.append(
        rich.text.Text("q leaves; another terminal can run: dovetail apply -f FILE", style="dim")
    )
    return rich.console.Group(*parts)


def _title(objects: object_set.ObjectSet) -> rich.text.Text:
    nodes = gpu_tiles.nodes_with_gpus(objects)
    gpus = [gpu for node in nodes for gpu in node.gpus]
    free = sum(gpu.state == gpu_tiles.FREE for gpu in gpus)
    claims = objects.count("ResourceClaim")
    return rich.text.Text.assemble(
        (f"fleet {plaintext.escaped(objects.cluster)}", "bold"),
        f"   {text.counted(len(nodes), 'node')}   {free} of {text.counted(len(gpus), 'GPU')} free"
        f"   {text.counted(claims, 'claim')}   revision {objects.revision}",
    )


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


def _wants_to_leave(keyboard: int) -> bool:
    """Waits a tick for a key. A closed terminal counts as leaving."""
    ready, _, _ = select.select([keyboard], [], [], TICK_SECONDS)
    if not ready:
        return False
    try:
        return os.read(keyboard, 1) in _LEAVE
    except OSError:
        return True


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Standard input key by key, restored afterwards."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
