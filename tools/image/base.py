"""Makes the base of the tests' image: the file system of a small Debian with Python, as a tar file in the user's cache.

Given nothing: suite and packages are constants. It takes the place of the base image that the Containerfile names,
where no registry can be asked. Packages come from where mmdebstrap finds Debian, checked by Debian's keys. Never
changes this machine's packages.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Final

from dovetail.devcluster import build_lock, go_build
from tools.image import commands

TITLE: Final = "the base of the image"
SUITE: Final = "bookworm"  # has Python 3.11, the oldest that Dovetail runs on
PACKAGES: Final = (
    "libstdc++6",  # google-re2 is C++; the usual slim images have it
    "python3",
    "python3-venv",
    "python-is-python3",  # the Containerfile calls it `python`
)
LEFT_OUT: Final = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")


def archive(say: go_build.Say) -> Path:
    """The tar file, made first if need be. Safe to call from several processes at once."""
    place = go_build.cache_home() / "image-base"
    place.mkdir(parents=True, exist_ok=True)
    done = place / f"{fingerprint()}.tar"
    with build_lock.held(done.with_suffix(".lock"), title=TITLE, say=say):
        if not done.exists():
            with tempfile.TemporaryDirectory(dir=place, prefix="unfinished-") as scratch:
                # Renamed when finished, so that a broken one is never mistaken for it.
                unfinished = Path(scratch) / "base.tar"
                commands.run(_command(unfinished), title=TITLE, scratch=Path(scratch), say=say)
                unfinished.rename(done)
    return done


def fingerprint() -> str:
    """A name that changes with what the base is made of, not with the versions that Debian has today."""
    words = _command(Path("base"))
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:20]


def _command(target: Path) -> list[str]:
    exclusions = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    return [
        "mmdebstrap",
        "--mode=root",
        "--variant=essential",  # no apt, no init
        "--format=tar",
        f"--include={','.join(PACKAGES)}",
        *exclusions,
        "--dpkgopt=force-unsafe-io",  # a power cut ends in a new build, not in half a base
        SUITE,
        str(target),
    ]
