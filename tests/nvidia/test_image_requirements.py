"""Our evaluation of NVIDIA_REQUIRE_* beside that of NVIDIA's container toolkit, on real and on generated texts."""

from __future__ import annotations

import itertools
import random
import subprocess
from typing import Any, Final

import msgspec
import pytest

from dovetail.gpus import image_requirements as requirements
from tests.gpus import requirement_strings
from tests.nvidia import programs

pytestmark = pytest.mark.slow

GENERATED: Final = 20_000
_VERSIONS: Final = [
    "12",
    "12.8",
    "12.9.1",
    "13.0",
    "13.2",
    "535",
    "535.1",
    "570.211.1",
    "580.95.05",
    "v12.9",
    "vv1",
    "0",
    "00",
    "1.2.3-rc.1",
    "1.2.3-rc.01",
    "1.2.3-2",
    "1.2.3-11",
    "1.2.3+b",
    "1.2-rc",
    "12.",
    ".5",
    "x",
    "99999999999999999999999.1",
    "7.5",
    "9.0",
    "",
]
_BRANDS: Final = ("tesla", "nvidia", "Nvidia", "", "é", "geforce")
_SIGNS: Final = ("=", "!=", "<", "<=", ">", ">=", ">=", "<", "!", "==", "=>", "")
_NAMES: Final = ("cuda", "cuda", "driver", "arch", "brand", "CUDA", "jetpack", "", " cuda", "cuda ")
_GAPS: Final = (" ", " ", ",", ",", "  ", ",,", "\t", "\u00a0", "\x1f", " ,")
_FLAGS: Final = ("true", "1", "T", "yes", "", "false")


def _texts(chance: random.Random) -> str:
    parts = []
    for _ in range(chance.randrange(5)):
        value = chance.choice(_VERSIONS if chance.random() < 0.8 else _BRANDS)
        parts += [chance.choice(_NAMES), chance.choice(_SIGNS), value, chance.choice(_GAPS)]
    return "".join(parts)


def _generated(chance: random.Random) -> dict[str, Any]:
    variables = ("NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_X", "NVIDIA_REQUIRE_JETPACK6")
    environment = {name: _texts(chance) for name in variables if chance.random() < 0.5}
    if chance.random() < 0.2:
        environment["CUDA_VERSION"] = chance.choice((*_VERSIONS, "4294967295.1", "4294967296"))
    if chance.random() < 0.1:
        environment["NVIDIA_DISABLE_REQUIRE"] = chance.choice(_FLAGS)
    host = {name: chance.choice(_VERSIONS) for name in requirements.VERSION_PROPERTIES}
    return {"env": environment, **host, "brand": chance.choice(_BRANDS)}


def _recorded() -> list[dict[str, Any]]:
    products = itertools.product(
        requirement_strings.BY_CUDA.values(), requirement_strings.HOSTS.items(), _BRANDS
    )
    return [
        {
            "env": {"NVIDIA_REQUIRE_CUDA": text},
            "driver": driver,
            "cuda": cuda,
            "brand": brand,
            "arch": "9.0",
        }
        for text, (driver, cuda), brand in products
    ]


def _ours(question: dict[str, Any]) -> str:
    texts = requirements.requirements_of(question["env"])
    host = {name: question[name] for name in requirements.PROPERTIES}
    return requirements.evaluate(texts, host).state.value


def _theirs(reply: dict[str, Any]) -> str:
    if reply["met"]:
        return requirements.State.MET.value
    is_invalid = reply["invalid"]
    return (requirements.State.INVALID if is_invalid else requirements.State.UNMET).value


def test_we_answer_as_nvidias_toolkit_does() -> None:
    chance = random.Random(18)
    questions = _recorded() + [_generated(chance) for _ in range(GENERATED)]
    lines = b"\n".join(map(msgspec.json.encode, questions))
    program = programs.program("requirements")
    done = subprocess.run([program], input=lines, stdout=subprocess.PIPE, check=True)
    replies = [msgspec.json.decode(line) for line in done.stdout.splitlines()]

    assert len(replies) == len(questions)
    states = [_theirs(reply) for reply in replies]
    assert {states.count(state) > 500 for state in ("met", "unmet", "invalid")} == {True}
    differences = [
        (question, state, _ours(question))
        for question, state in zip(questions, states, strict=True)
        if state != _ours(question)
    ]
    assert differences[:5] == []
