"""Turns tokens into a syntax tree. Precedence climbing; macros expand as their calls are read.

Depth is bounded as upstream bounds it, so hostile nesting ends with an issue, not with a crash.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.cel.language import ast, lexer, literals, macros
from dovetail.cel.language.lexer import Token
from dovetail.cel.language.source import Issue

MAX_DEPTH: Final = 250  # cel-go: parser recursion limit
MAX_CHARACTERS: Final = 100_000  # cel-go: expression size limit
MAX_NODES: Final = 100_000  # optMap copies its target, so a chain of them doubles with each link
RESERVED: Final = frozenset(
    """as break const continue else false for function if import in let loop package namespace null return
    true var void while""".split()  # noqa: SIM905
)
RELATIONS: Final = {
    "<": "_<_",
    "<=": "_<=_",
    ">=": "_>=_",
    ">": "_>_",
    "==": "_==_",
    "!=": "_!=_",
    "in": "@in",
}
ARITHMETIC: Final = {
    "*": ("_*_", 1),
    "/": ("_/_", 1),
    "%": ("_%_", 1),
    "+": ("_+_", 0),
    "-": ("_-_", 0),
}


class SyntaxProblem(Exception):
    """Ends parsing; carries the issue."""

    def __init__(self, issue: Issue) -> None:
        super().__init__(issue.message)
        self.issue = issue


class Parsed(NamedTuple):
    """A tree, the issues of the text, and the offsets of the parts of && and ||."""

    root: ast.Node | None
    issues: list[Issue]
    spans: dict[int, tuple[int, int]]


def parse(text: str) -> Parsed:
    """The tree, or None and the issues. Never raises on bad text."""
    if len(text) > MAX_CHARACTERS:
        issue = Issue(
            0, f"expression has {len(text)} characters, at most {MAX_CHARACTERS} are allowed"
        )
        return Parsed(None, [issue], {})
    tokens = lexer.tokens(text)
    if isinstance(tokens, Issue):
        return Parsed(None, [tokens], {})
    if len(tokens) > 100:
        # 250 levels of nesting need more Python frames than the default limit grants.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 12_000))
    parser = _Parser(tokens)
    try:
        tree = parser.expression()
        parser.expect(lexer.END)
    except SyntaxProblem as problem:
        return Parsed(None, [*parser.issues, problem.issue], {})
    return Parsed(None if parser.issues else tree, parser.issues, parser.spans)


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.issues: list[Issue] = []
        self.last_id = 0
        self.open = dict.fromkeys(("expr", "relation", "calc", "member"), 0)
        self.spans: dict[int, tuple[int, int]] = {}  # offsets of the parts of && and ||
        self.depths: dict[int, int] = {}  # nesting of the nodes that upstream's visitor counts

    # Tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def accept(self, kind: str) -> Token | None:
        return self.take() if self.token.kind == kind else None

    def expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            expected = kind if kind in (lexer.END, lexer.IDENT) else f"'{kind}'"
            raise SyntaxProblem(
                Issue(self.token.offset, f"expected {expected}, found {_shown(self.token)}")
            )
        return self.take()

    # Nodes

    def next_id(self) -> int:
        self.last_id += 1
        if self.last_id > MAX_NODES:
            raise SyntaxProblem(
                Issue(self.token.offset, f"expression has more than {MAX_NODES} parts")
            )
        return self.last_id

    def depth_of(self, *nodes: ast.Node | None) -> int:
        return max((self.depths.get(node.id, 0) for node in nodes if node is not None), default=0)

    def grown(self, node: ast.Node, depth: int) -> ast.Node:
        if depth > MAX_DEPTH:
            raise SyntaxProblem(
                Issue(node.offset, f"expression is nested deeper than {MAX_DEPTH} levels")
            )
        self.depths[node.id] = depth
        return node

    def enter(self, rule: str) -> None:
        self.open[rule] += 1
        if self.open[rule] > MAX_DEPTH:
            raise SyntaxProblem(
                Issue(self.token.offset, f"expression is nested deeper than {MAX_DEPTH} levels")
            )

    # Grammar, loosest binding first

    def expression(self) -> ast.Node:
        self.enter("expr")
        node = self.disjunction()
        if mark := self.accept("?"):
            node_id = self.next_id()
            yes = self.disjunction()
            self.expect(":")
            no = self.expression()
            call = ast.Call(node_id, mark.offset, "_?_:_", [node, yes, no])
            node = self.grown(call, 1 + self.depth_of(node, yes, no))
        self.open["expr"] -= 1
        return node

    def disjunction(self) -> ast.Node:
        terms, marks = [self.spanned(self.conjunction)], []
        while mark := self.accept("||"):
            terms.append(self.spanned(self.conjunction))
            marks.append((self.next_id(), mark.offset))
        return self.balanced("_||_", terms, marks)

    def conjunction(self) -> ast.Node:
        terms, marks = [self.spanned(self.relation)], []
        while mark := self.accept("&&"):
            terms.append(self.spanned(self.relation))
            marks.append((self.next_id(), mark.offset))
        return self.balanced("_&&_", terms, marks)

    def spanned(self, rule: Callable[[], ast.Node]) -> ast.Node:
        start = self.token.offset
        node = rule()
        last = self.tokens[self.position - 1]
        self.spans.setdefault(node.id, (start, last.offset + len(last.text)))
        return node

    def balanced(
        self, function: str, terms: list[ast.Node], marks: list[tuple[int, int]]
    ) -> ast.Node:
        """Long chains become balanced trees, so their depth is logarithmic."""
        if not marks:
            return terms[0]

        def tree(low: int, high: int) -> ast.Node:
            middle = (low + high + 1) // 2
            left = terms[middle] if middle == low else tree(low, middle - 1)
            right = terms[middle + 1] if middle == high else tree(middle + 1, high)
            node_id, offset = marks[middle]
            self.depths[node_id] = self.depth_of(left, right)
            return ast.Call(node_id, offset, function, [left, right])

        return tree(0, len(marks) - 1)

    def relation(self, level: int = 0) -> ast.Node:
        """Comparisons, left-associative; the right side of one binds tighter."""
        self.enter("relation")
        node = self.calc(0)
        while level == 0 and (function := RELATIONS.get(self.token.kind)) is not None:
            mark = self.take()
            node_id = self.next_id()
            right = self.relation(1)
            node = self.binary(ast.Call(node_id, mark.offset, function, [node, right]))
        self.open["relation"] -= 1
        return node

    def calc(self, level: int) -> ast.Node:
        """Sums (level 0) and products (level 1), left-associative."""
        self.enter("calc")
        node = self.unary()
        while (operator := ARITHMETIC.get(self.token.kind)) is not None and operator[1] >= level:
            mark = self.take()
            node_id = self.next_id()
            right = self.calc(operator[1] + 1)
            node = self.binary(ast.Call(node_id, mark.offset, operator[0], [node, right]))
        self.open["calc"] -= 1
        return node

    def binary(self, call: ast.Call) -> ast.Node:
        return self.grown(call, 1 + self.depth_of(*call.args))

    def unary(self) -> ast.Node:
        mark = self.token
        if mark.kind == "-" and self.tokens[self.position + 1].kind in (lexer.INT, lexer.FLOAT):
            return self.member()
        if mark.kind not in ("!", "-"):
            return self.member()
        count = 0
        while self.token.kind == mark.kind:
            self.take()
            count += 1
        if count % 2 == 0:  # double negation cancels while parsing
            return self.member()
        node_id = self.next_id()
        operand = self.member()
        node = ast.Call(node_id, mark.offset, "!_" if mark.kind == "!" else "-_", [operand])
        self.depths[node_id] = self.depth_of(operand)
        return node

    def member(self) -> ast.Node:
        self.enter("member")
        node = self.primary()
        while self.token.kind in (".", "["):
            node = self.selection(node) if self.token.kind == "." else self.index(node)
        self.open["member"] -= 1
        return node

    def selection(self, operand: ast.Node) -> ast.Node:
        mark = self.take()
        is_optional = self.accept("?") is not None
        name = self.accept(lexer.ESCAPED) or self.expect(lexer.IDENT)
        field = name.text[1:-1] if name.kind == lexer.ESCAPED else name.text
        if is_optional:
            literal = ast.Literal(self.next_id(), name.offset, field)
            call = ast.Call(self.next_id(), mark.offset, "_?._", [operand, literal])
            return self.grown(call, 1 + self.depth_of(operand))
        if self.token.kind == "(" and name.kind == lexer.IDENT:
            opening = self.take()
            node_id = self.next_id()
            args = self.arguments()
            expansion = macros.expand(self, node_id, opening.offset, field, operand, args)
            node = expansion or ast.Call(node_id, opening.offset, field, args, target=operand)
            return self.grown(node, 1 + self.depth_of(operand, *args))
        return self.grown(
            ast.Select(self.next_id(), mark.offset, operand, field), 1 + self.depth_of(operand)
        )

    def index(self, operand: ast.Node) -> ast.Node:
        mark = self.take()
        function = "_[?_]" if self.accept("?") else "_[_]"
        node_id = self.next_id()
        position = self.expression()
        self.expect("]")
        call = ast.Call(node_id, mark.offset, function, [operand, position])
        return self.grown(call, 1 + self.depth_of(operand, position))

    def arguments(self) -> list[ast.Node]:
        args: list[ast.Node] = []
        if self.token.kind != ")":
            args.append(self.expression())
            while self.accept(","):
                args.append(self.expression())
        self.expect(")")
        return args

    def primary(self) -> ast.Node:
        token = self.token
        if token.kind in (lexer.IDENT, "."):
            return self.name()
        if token.kind == "(":
            self.take()
            node = self.expression()
            self.expect(")")
            return node
        if token.kind == "[":
            return self.list_literal()
        if token.kind == "{":
            return self.map_literal()
        return self.literal()

    def name(self) -> ast.Node:
        start = self.token
        dot = "." if self.accept(".") else ""
        if self.message_ahead():
            return self.message(dot, start.offset)
        name = self.expect(lexer.IDENT)
        if name.text in RESERVED:
            raise SyntaxProblem(Issue(name.offset, f"'{name.text}' is a reserved word"))
        if opening := self.accept("("):
            node_id = self.next_id()
            args = self.arguments()
            expansion = macros.expand(self, node_id, opening.offset, dot + name.text, None, args)
            node = expansion or ast.Call(node_id, opening.offset, dot + name.text, args)
            self.depths[node.id] = self.depth_of(*args)
            return node
        return ast.Ident(self.next_id(), name.offset, dot + name.text)

    def message_ahead(self) -> bool:
        ahead = self.position
        while self.tokens[ahead].kind == lexer.IDENT:
            following = self.tokens[ahead + 1].kind
            if following == "{":
                return True
            if following != ".":
                return False
            ahead += 2
        return False

    def items(self, closing: str, read: Callable[[], None]) -> None:
        """Items separated by commas, with at most one trailing comma, up to the closing bracket."""
        if self.token.kind not in (closing, ","):
            read()
            while self.token.kind == "," and self.tokens[self.position + 1].kind != closing:
                self.take()
                read()
        self.accept(",")
        self.expect(closing)

    def message(self, dot: str, offset: int) -> ast.Node:
        names = [self.expect(lexer.IDENT).text]
        while self.accept("."):
            names.append(self.expect(lexer.IDENT).text)
        self.expect("{")
        node_id = self.next_id()
        entries: list[ast.Entry] = []

        def field() -> None:
            is_optional = self.accept("?") is not None
            token = self.accept(lexer.ESCAPED) or self.expect(lexer.IDENT)
            name = token.text[1:-1] if token.kind == lexer.ESCAPED else token.text
            colon = self.expect(":")
            value = self.expression()
            entries.append(
                ast.Entry(
                    self.next_id(), colon.offset, None, value, name=name, optional=is_optional
                )
            )

        self.items("}", field)
        node = ast.StructExpr(node_id, offset, dot + ".".join(names), entries)
        self.depths[node_id] = self.depth_of(*(e.value for e in entries))
        return node

    def list_literal(self) -> ast.Node:
        mark = self.take()
        node_id = self.next_id()
        elements: list[ast.Node] = []
        optional: set[int] = set()

        def element() -> None:
            if self.accept("?"):
                optional.add(len(elements))
            elements.append(self.expression())

        self.items("]", element)
        self.depths[node_id] = self.depth_of(*elements)
        return ast.ListExpr(node_id, mark.offset, elements, frozenset(optional))

    def map_literal(self) -> ast.Node:
        mark = self.take()
        node_id = self.next_id()
        entries: list[ast.Entry] = []

        def entry() -> None:
            is_optional = self.accept("?") is not None
            key = self.expression()
            colon = self.expect(":")
            value = self.expression()
            entries.append(
                ast.Entry(self.next_id(), colon.offset, key, value, optional=is_optional)
            )

        self.items("}", entry)
        self.depths[node_id] = self.depth_of(*(part for e in entries for part in (e.key, e.value)))
        return ast.MapExpr(node_id, mark.offset, entries)

    def literal(self) -> ast.Node:
        sign = self.accept("-")
        token = self.take()
        text = ("-" if sign else "") + token.text
        if token.kind in _CONSTANTS and not sign:
            return ast.Literal(self.next_id(), token.offset, _CONSTANTS[token.kind])
        reader = _LITERALS.get(token.kind)
        if reader is None or (sign and token.kind not in (lexer.INT, lexer.FLOAT)):
            raise SyntaxProblem(
                Issue(token.offset, f"expected an expression, found {_shown(token)}")
            )
        value = reader(text)
        if value is None:
            raise SyntaxProblem(
                Issue(token.offset, f"invalid {token.kind} literal {token.text[:40]}")
            )
        return ast.Literal(self.next_id(), token.offset, value)


_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_LITERALS: Final = {
    lexer.INT: literals.integer,
    lexer.UINT: literals.unsigned,
    lexer.FLOAT: literals.double,
    lexer.STRING: literals.string,
    lexer.BYTES: literals.octets,
}


def _shown(token: Token) -> str:
    return token.kind if token.kind == lexer.END else f"'{token.text[:40]}'"
