"""Writes symbols.txt: the name of every function a program may look up in libnvidia-ml.so.1.

Given nvml.h (from the Go module of go-nvml) and nvidia-ml-py's module, collects the names that the header declares or
that the module resolves. Names are all it takes. Run it again for a newer NVML:

    python tools/fakenvml/symbols.py NVML_H PYNVML_PY > tools/fakenvml/symbols.txt
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DECLARED = re.compile(r"DECLDIR[\s\w*]*?\b(nvml[A-Z]\w*)\s*\(")
RESOLVED = re.compile(r"_nvmlGetFunctionPointer\(\"(nvml\w+)\"")
COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def main() -> None:
    """Prints the sorted names, one per line."""
    header, module = (Path(argument).read_text(encoding="utf-8") for argument in sys.argv[1:3])
    declared = DECLARED.findall(COMMENTS.sub(" ", header))
    resolved = RESOLVED.findall(module)
    print("\n".join(sorted({*declared, *resolved})))


if __name__ == "__main__":
    main()
