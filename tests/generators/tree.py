"""Generated text as a tree of typed pieces, so that a failing case can be made smaller piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Type = tuple[object, ...]


class Piece:
    """A stretch of text with the type it was made for; parts are plain text or further pieces."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: Type, *parts: str | Piece) -> None:
        self.kind = kind
        self.parts = parts

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def children(self) -> list[Piece]:
        """The pieces directly inside."""
        return [part for part in self.parts if isinstance(part, Piece)]

    def descendants(self) -> Iterator[Piece]:
        """Every piece below, outermost first."""
        for child in self.children():
            yield child
            yield from child.descendants()

    def size(self) -> int:
        """How many pieces there are, this one included."""
        return 1 + sum(child.size() for child in self.children())

    def with_part(self, index: int, part: Piece) -> Piece:
        """The same text with one part exchanged."""
        return Piece(self.kind, *self.parts[:index], part, *self.parts[index + 1 :])


def smaller(piece: Piece, simplest: Callable[[Type], list[str]]) -> Iterator[Piece]:
    """Every tree one step smaller: the big cuts come first."""
    text = str(piece)
    for plain in simplest(piece.kind):
        if len(plain) < len(text):
            yield Piece(piece.kind, plain)
    inner = list(piece.descendants())
    yield from (below for below in inner if below.kind == piece.kind)
    yield from (
        Piece(piece.kind, "(", below, ")")
        for below in inner
        if below.kind != piece.kind and len(inner) < 40
    )
    for index, part in enumerate(piece.parts):
        if isinstance(part, Piece):
            for less in smaller(part, simplest):
                yield piece.with_part(index, less)


def minimal(
    piece: Piece, still_fails: Callable[[str], bool], simplest: Callable[[Type], list[str]]
) -> Piece:
    """The smallest tree found by greedy cuts for which `still_fails` holds. Bounded in questions asked."""
    asked: set[str] = set()
    budget = 400
    shrunk = True
    while shrunk and budget > 0:
        shrunk = False
        for candidate in smaller(piece, simplest):
            text = str(candidate)
            if text in asked or len(text) >= len(str(piece)):
                continue
            asked.add(text)
            budget -= 1
            if still_fails(text):
                piece, shrunk = candidate, True
                break
            if budget <= 0:
                break
    return piece
