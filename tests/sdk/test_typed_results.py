"""Programs that use the package are checked by mypy: every result has a type, also those that are loaded late."""

from __future__ import annotations

import re
from pathlib import Path

import mypy.api
import pytest

from tests.cli import running

CODE = Path(__file__).with_name("typed_user_code.py")
REVEALED = [
    "int",
    "str",
    "dict[str, str]",
    "tuple[str, ...]",
    "dovetail.sdk.result_table.Table[dovetail.tables.items.claim_items.ClaimItem]",
    "float | None",
    "int | None",
    "float | None",
    "datetime.datetime | None",
    "dovetail.answer.why.why_answer.Cause | None",
    "str",
    "float | None",
    "str",
    "int",
    "datetime.datetime",
]


@pytest.mark.slow
def test_results_have_types_in_user_code_and_in_the_examples(tmp_path: Path) -> None:
    config = str(running.ROOT / "pyproject.toml")
    examples = sorted(map(str, (running.EXAMPLES / "sdk").glob("*.py")))
    out, err, code = mypy.api.run(
        ["--config-file", config, "--strict", f"--cache-dir={tmp_path}", str(CODE), *examples]
    )
    types = re.findall(r'Revealed type is "(.*)"', out)
    shown = [re.sub(r"builtins\.", "", each) for each in types]
    assert shown == REVEALED, out
    assert code == 0, out + err
