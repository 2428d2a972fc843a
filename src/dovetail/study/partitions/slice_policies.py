"""Rules that choose GPU and start for a MIG slice: first fit, best fit, and LEX, which the engine uses.

A rule is an order of (mask of the GPU, start) per profile, worked out once for all masks. Between GPUs of one mask the
first wins, and between starts of equal rank the lowest. A slice that fits somewhere is always placed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.study.partitions.board_places import Board, SliceProfile

Rank = tuple[int, ...]
Rule = Callable[[Board, SliceProfile, int, int], Rank]  # board, profile, mask in use, start


class RankedStart(NamedTuple):
    """The best start on a GPU in some state; the lowest rank of all GPUs wins."""

    rank: Rank
    start: int


def first_fit(board: Board, profile: SliceProfile, used: int, start: int) -> Rank:
    """The first GPU with room."""
    return ()


def best_fit(board: Board, profile: SliceProfile, used: int, start: int) -> Rank:
    """The GPU with the most memory slices in use."""
    return (-used.bit_count(),)


def lex(board: Board, profile: SliceProfile, used: int, start: int) -> Rank:
    """The fewest lost places of the largest profile, then of the next; of equals the fullest GPU."""
    return (*board.lost(used, profile.mask(start)), -used.bit_count())


RULES: Final[dict[str, Rule]] = {"first-fit": first_fit, "best-fit": best_fit, "lex": lex}
REPACK: Final = "repack"  # accepts what fits after any rearrangement: a reference, not a rule
NAMES: Final = (*RULES, REPACK)


class RankTable:
    """The best start of each profile on a GPU in any state, by one rule. States are added as they are met."""

    def __init__(self, board: Board, rule: Rule) -> None:
        self._board = board
        self._rule = rule
        self._best: dict[tuple[SliceProfile, int], RankedStart | None] = {}

    def best(self, profile: SliceProfile, used: int) -> RankedStart | None:
        """None where the profile does not fit."""
        key = (profile, used)
        if key not in self._best:
            ranked = [
                RankedStart(self._rule(self._board, profile, used, start), start)
                for start in profile.free_starts(used)
            ]
            self._best[key] = min(ranked, default=None)
        return self._best[key]


def named(name: str) -> str:
    """The policy of this name."""
    if name not in NAMES:
        raise errors.NotFound(f'no policy "{name}"; there are: {", ".join(NAMES)}')
    return name
