"""Generates the gRPC messages of the node agent before Dovetail is built or installed as a checkout.

Given the .proto files of dovetail/node/kubelet/wire, writes one module and its types beside each. Run by hatchling,
and by hand as `python hatch_build.py`. Never runs at run time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE: Final = Path(__file__).resolve().parent / "src"
WIRE: Final = SOURCE / "dovetail" / "node" / "kubelet" / "wire"


class KubeletMessages(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook; hatchling finds it because it is the only one here."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build, also that of an editable install."""
        generate()


def generate() -> None:
    """Writes NAME_pb2.py and NAME_pb2.pyi for each NAME.proto; removes those without one."""
    sources = sorted(WIRE.glob("*.proto"))
    names = {path.stem for path in sources}
    for path in sorted(WIRE.glob("*_pb2.py*")):
        if path.name.partition("_pb2.")[0] not in names:
            path.unlink()

    # Paths from `src` on: protobuf keeps one registry of file names for the whole process.
    arguments = [
        "protoc",
        f"--proto_path={SOURCE}",
        f"--python_out={SOURCE}",
        f"--pyi_out={SOURCE}",
    ]
    arguments += [str(path) for path in sources]
    if code := protoc.main(arguments):
        raise SystemExit(f"protoc failed with exit code {code}; its messages are above")


if __name__ == "__main__":
    generate()
