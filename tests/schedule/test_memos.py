"""What the core remembers is in `dovetail.cache` and nowhere else, and plans do not depend on it."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import dovetail
from dovetail import cache
from dovetail.model import plan
from dovetail.schedule import decide
from tests.batch import random_clusters
from tests.schedule import build, test_properties

PURE_ROOMS = (
    "quantity",
    "kubetypes",
    "model",
    "manifest",
    "gpus",
    "admission",
    "cel",
    "world",
    "allocate",
    "schedule",
    "answer",
)
HAND_MADE = ("lru_cache", "WeakKeyDictionary", "WeakValueDictionary")
ADDING = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})
ROOT = Path(dovetail.__file__).parent


# Memos


def test_the_least_recently_used_are_forgotten_first() -> None:
    memo = cache.Memo[str, int](3)
    for number, name in enumerate("abc"):
        memo.put(name, number)
    memo.get("a")
    memo.put("d", 3)
    assert [key for key, _ in memo.items()] == ["c", "a", "d"]
    memo.put("e", 4, weight=9)
    assert memo.items() == [("e", 4)]  # heavier than all may be, and still the newest
    assert memo.weight == 9


def test_values_that_grow_are_weighed_again() -> None:
    memo = cache.Memo[str, list[int]](4, weigh=len)
    growing = [1]
    memo.put("growing", growing)
    memo.put("small", [1, 2])
    growing += [2, 3]
    assert memo.weight == 5
    memo.put("new", [])
    assert [key for key, _ in memo.items()] == ["small", "new"]


def test_another_version_forgets_what_an_owner_has() -> None:
    world = build.world()
    memo = cache.WeakMemo[object, str, object](4)
    first = memo.of(world, "key", object, version=1)
    assert memo.of(world, "key", object, version=1) is first
    assert memo.of(world, "key", object, version=2) is not first


def test_nothing_is_remembered_while_memory_is_off() -> None:
    memo = cache.Memo[str, int](4)
    memo.put("before", 1)
    with cache.off():
        memo.put("inside", 2)
        assert len(memo) == 0
    memo.put("after", 3)
    assert memo.items() == [("after", 3)]


# Plans


@pytest.mark.parametrize("seed", range(20))
def test_pods_alone_are_planned_the_same_with_all_memory_off(seed: int) -> None:
    world = test_properties.random_world(seed)
    remembered = [build.decided(world) for _ in range(2)]
    with cache.off():
        fresh = build.decided(test_properties.random_world(seed))
    assert remembered == [fresh, fresh]


@pytest.mark.parametrize("seed", range(20))
def test_queues_and_gangs_are_planned_the_same_with_all_memory_off(seed: int) -> None:
    def planned() -> plan.Plan:
        return decide.decide(cluster.world, cluster.policy, cluster.now)

    cluster = random_clusters.seeded(seed)
    remembered = [planned() for _ in range(2)]
    with cache.off():
        fresh = planned()
    assert remembered == [fresh, fresh]


# The law: no other memory


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_no_module_of_the_core_has_memory_of_its_own(room: str) -> None:
    result = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, what in memory_in(ast.parse(path.read_text()))
    ]
    assert result == []


@pytest.mark.parametrize(
    "text",
    [
        "_known = {}\ndef f(x):\n    _known[x] = 1",
        "_known: dict[int, int] = {}\ndef f(x):\n    return _known.setdefault(x, 1)",
        "_last = None\ndef f(x):\n    global _last\n    _last = x",
        "import functools\n@functools.lru_cache(maxsize=3)\ndef f(x): ...",
        "import functools\n@functools.cache\ndef f(x): ...",
        "from weakref import WeakKeyDictionary\n_kept = WeakKeyDictionary()",
        "class A:\n    known = []\n    def f(self, x):\n        A.known.append(x)",
    ],
)
def test_the_law_sees_hand_made_memory(text: str) -> None:
    assert [*memory_in(ast.parse(text))]


def test_clearing_leaves_modules_as_they_were_before_anything_was_decided() -> None:
    """Catches what the law cannot read off the text, such as a module's object that grows."""
    modules = [*core_modules()]
    cache.clear()
    before = {module.__name__: reachable(module) for module in modules}
    for seed in range(100, 106):
        build.decided(test_properties.random_world(seed))
        cluster = random_clusters.seeded(seed)
        decide.decide(cluster.world, cluster.policy, cluster.now)
    del cluster
    cache.clear()
    assert {module.__name__: reachable(module) for module in modules} == before


def memory_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines that remember something from call to call, as far as the text shows it."""
    names = {name for statement in tree.body for name in _bound(statement)}
    for statement in tree.body:
        if not isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.ImportFrom | ast.Import):
            yield from ((node.lineno, name) for node, name in _hand_made(statement))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for decorator in function.decorator_list:
                text = ast.unparse(decorator)
                if "lru_cache" in text or text in ("cache", "functools.cache"):
                    yield decorator.lineno, text
            yield from _changes(function, names - _locals(function))


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _hand_made(statement: ast.stmt) -> Iterator[tuple[ast.expr, str]]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and any(name in ast.unparse(node.func) for name in HAND_MADE):
            yield node, ast.unparse(node.func)


def _locals(function: ast.FunctionDef) -> set[str]:
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    return stored | arguments


def _changes(function: ast.FunctionDef, names: set[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield node.lineno, f"global {', '.join(node.names)}"
        is_item = isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
        if is_item and _root(node.value) in names:
            yield node.lineno, ast.unparse(node)
        is_addition = isinstance(node, ast.Attribute) and node.attr in ADDING
        if is_addition and _root(node.value) in names:
            yield node.lineno, ast.unparse(node)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def core_modules() -> Iterator[types.ModuleType]:
    for room in PURE_ROOMS:
        package = importlib.import_module(f"dovetail.{room}")
        yield package
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(info.name)


def reachable(module: types.ModuleType) -> int:
    """How many objects a module's own values hold, code and types aside."""
    skipped = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    seen: dict[int, object] = {}
    left = [value for name, value in vars(module).items() if not name.startswith("__")]
    while left:
        value = left.pop()
        if id(value) in seen or isinstance(value, skipped) or hasattr(value, "cache_info"):
            continue
        seen[id(value)] = value
        left += gc.get_referents(value)
    return len(seen)
