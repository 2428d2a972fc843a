"""The quick reader of plain YAML gives what the full one gives, or nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.manifest import yaml_text
from dovetail.snapshot import plain_yaml

WORDS = st.sampled_from((
    "yes", "No", "null", "~", "010", "1e3", "1_000", "0x1f", ".5", "2026-01-31T08:00:00Z", "a: b",
    "a #b", "a:b", "# c", "- x", "", " a", "a ", "é", "it's", '"q"', "{}", "[]", "|", "&a", "*a",
    "a\n", "a\n\nb\n", "a\n b", " a\nb", "\na", "a\n\n", '{"a":1}\n', "\\", 'say "x"', "a\n# b\n",
    "80Gi", "-1", "+1", "-", "--", "---", "...", "? a", "%", "@a", "a\nb", "x\ty", "'", "\\n",
))  # fmt: skip
SCALARS = (
    WORDS
    | st.text(max_size=12)
    | st.integers(-(2**31), 2**31)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
)
KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_./:-]{0,8}", fullmatch=True) | WORDS
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


class _LiteralDumper(_Dumper):
    """Writes texts of several lines as literals, and others in double quotes, as Go does."""


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value else '"' if "\\" in value or '"' in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_LiteralDumper.add_representer(str, _text)


class _IndentingDumper(yaml.SafeDumper):
    """Indents the items of lists below their key, as many people do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def in_full(text: str) -> Any:
    """What the full reader makes of it; the error where it refuses."""
    try:
        documents = [document.tree for document in yaml_text.documents(text)]
    except yaml_text.TextError as error:
        return error
    return documents[0] if len(documents) == 1 else documents


def agrees(text: str) -> bool:
    """Whether the quick reader says the same. It may always say nothing. Returns whether it said something."""
    quick = plain_yaml.parsed(text)
    if quick is None:
        return False
    assert quick == in_full(text), text
    return True


@given(TREES, st.sampled_from([_Dumper, _IndentingDumper, _LiteralDumper]))
def test_what_is_dumped_is_read_alike(tree: Any, dumper: type[Any]) -> None:
    agrees(yaml.dump(tree, Dumper=dumper, sort_keys=False, allow_unicode=True))


LINES = (
    "a:", "  b: 1", "  - c", "- d: e", "- f", "    g: h", "a: x", "  - i: j", "    k:", "b:", "-",
    "- ", "", "# note", "  # note", "---", "...", "  - --v", "- -x=1", "e: ---", "e: --",
    "  continued", "l: |", "- |-", "    text", "  # text", "      deep", "m: |+", '"n": |', 'o: "\\n\\""',
    "  b: |", " ", "      ", "   m: n", "a: {}", "c: []",
    'q: "x"', "q: 'it''s'", "r: a: b", "s: a #b", "- - t", "u : v", "w:x", "- ? y", "z: !t 1",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_lines_in_any_order_are_read_alike_or_not_at_all(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        agrees("\n".join(rng.choices(LINES, k=rng.randint(1, 6))))


POD = """\
apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: "2026-01-31T08:00:00Z"
  labels:
    app.kubernetes.io/name: train
    empty: ""
  name: train-0
  ownerReferences:
  - apiVersion: batch/v1
    controller: true
    name: train
spec:
  containers:
  - args:
    - --lr
    - "0.1"
    image: registry.example:5000/train@sha256:0a
    resources: {}
  priority: 1000
status:
  conditions:
  - lastProbeTime: null
    status: "True"
"""


def test_an_object_as_kubectl_prints_it_is_plain() -> None:
    assert agrees(POD)
    tree: Any = plain_yaml.parsed(POD)
    assert tree["spec"]["containers"][0]["resources"] == {}
    assert tree["status"]["conditions"][0]["lastProbeTime"] is None


LITERAL = """\
metadata:
  annotations:
    last: |
      {"kind":"Pod"}
    script: |-
      #!/bin/sh

        echo "a: b"
  name: a
args:
- |
  one
  two

- three
"""


def test_literals_are_plain() -> None:
    assert agrees(LITERAL)
    tree: Any = plain_yaml.parsed(LITERAL)
    assert tree["metadata"]["annotations"]["script"] == '#!/bin/sh\n\n  echo "a: b"'
    assert tree["args"] == ["one\ntwo\n", "three"]


def test_equal_lines_never_share_a_container() -> None:
    tree = plain_yaml.parsed("a:\n- x: {}\n- x: {}\nb:\n- v: []\n- v: []\n")
    assert tree is not None
    tree["a"][0]["x"]["changed"] = tree["b"][0]["v"].append(1)
    assert tree["a"][1]["x"] == {}
    assert tree["b"][1]["v"] == []
    assert plain_yaml.parsed("a:\n- x: {}\n") == {"a": [{"x": {}}]}


def test_depth_is_bounded() -> None:
    deep = "\n".join(" " * level + "a:" for level in range(yaml_text.MAX_DEPTH + 5))
    assert plain_yaml.parsed(deep + " 1") is None
