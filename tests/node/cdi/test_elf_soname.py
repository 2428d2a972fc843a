"""The SONAME of libraries: those of the fake driver, of this interpreter, and of files that are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.cdi.elf_soname import soname


def test_libraries_are_known_by_their_soname(hardware: Hardware) -> None:
    folder = hardware.library_directory
    assert soname(folder / "libcuda.so.580.95.05") == "libcuda.so.1"
    assert soname(folder / "libnvidia-nvvm.so.580.95.05") == "libnvidia-nvvm.so.4"


def test_what_is_no_library_has_none(tmp_path: Path) -> None:
    assert soname(Path(sys.executable).resolve()) == ""
    text = tmp_path / "libtext.so"
    text.write_text("INPUT(libm.so.6)", "ascii")
    assert soname(text) == ""
    with pytest.raises(OSError, match="No such file"):
        soname(tmp_path / "absent")


@given(noise=st.binary(max_size=300))
def test_a_damaged_header_never_breaks_the_reader(
    noise: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("elf") / "lib.so"
    path.write_bytes(b"\x7fELF\x02\x01\x01" + noise)
    assert isinstance(soname(path), str)
