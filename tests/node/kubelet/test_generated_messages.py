"""What a checkout without generated messages says, and that the build hook writes all of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import dovetail

PACKAGE = Path(dovetail.__file__).parent
ROOT = PACKAGE.parent.parent


def test_a_checkout_without_them_says_how_to_make_them(tmp_path: Path) -> None:
    shutil.copytree(
        PACKAGE, tmp_path / "dovetail", ignore=shutil.ignore_patterns("__pycache__", "*_pb2.py*")
    )
    done = subprocess.run(
        [sys.executable, "-c", "import dovetail.node.kubelet.dra_plugin"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert "are not generated" in message
    assert "make .venv/run.stamp" in message


def test_the_hook_writes_every_message_and_removes_what_has_no_source(tmp_path: Path) -> None:
    folder = tmp_path / "src/dovetail/node/kubelet/wire"
    folder.mkdir(parents=True)
    for path in (PACKAGE / "node/kubelet/wire").glob("*.proto"):
        shutil.copy(path, folder)
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (folder / "gone_v1_pb2.py").touch()

    subprocess.run([sys.executable, str(tmp_path / "hatch_build.py")], check=True)

    written = {path.name for path in folder.iterdir()}
    names = {path.stem for path in folder.glob("*.proto")}
    assert names
    assert written == {
        f"{name}{ending}" for name in names for ending in (".proto", "_pb2.py", "_pb2.pyi")
    }
