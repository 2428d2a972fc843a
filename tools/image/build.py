"""Builds the product's image from its Containerfile, once for each state of the sources, and prints where it is.

Given the checkout, buildah and mmdebstrap. The image is kept in the user's cache as an archive of the format of
`docker save`, which containerd, podman and docker import; buildah works in a scratch directory, so that this machine's
own images stay as they are. Needs root. Exit codes: 0 path printed, 1 build failed or refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]  # any Python will do, installed or not

from dovetail.devcluster import build_lock, go_build  # noqa: E402
from tools.image import base, commands, pip_settings, sources  # noqa: E402

NAME: Final = "localhost/dovetail:dev"  # no registry serves it: pods must not pull it
BASE_NAME: Final = "localhost/dovetail-base:dev"
TITLE: Final = "the image"
TOOLS: Final = ("buildah", "mmdebstrap")  # Debian has each in a package of its name
KEPT: Final = 3  # archives: each is as large as the image


def archive(say: go_build.Say = go_build.say_on_stderr) -> Path:
    """The image's archive, built first if need be. Safe to call from several processes at once."""
    if problem := refusal():
        raise go_build.BuildFailed(problem)
    place = go_build.cache_home() / "image"
    place.mkdir(parents=True, exist_ok=True)
    fingerprint = sources.fingerprint()
    done = place / f"{fingerprint}.tar"
    with build_lock.held(place / "build.lock", title=TITLE, say=say):
        if not done.exists():
            base_archive = base.archive(say)
            with tempfile.TemporaryDirectory(dir=place, prefix="unfinished-") as scratch:
                unfinished = _build(base_archive, scratch=Path(scratch), say=say)
                if sources.fingerprint() != fingerprint:
                    raise go_build.BuildFailed(f"files changed while {TITLE} was built; repeat it")
                unfinished.rename(done)
        done.touch()
        _forget_oldest(place)
    return done


def refusal() -> str | None:
    """Why this machine cannot build the image; None if it can."""
    if os.geteuid() != 0:
        return "the image's build changes owners and mounts directories, which only root may"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"the image's build needs {' and '.join(absent)}; `make system-deps` installs them"
    return None


def _build(base_archive: Path, *, scratch: Path, say: go_build.Say) -> Path:
    """Builds in a scratch directory, so that a broken archive is never mistaken for a finished one."""
    context = scratch / "base"
    context.mkdir()
    (context / "base.tar").hardlink_to(base_archive)
    (context / "Containerfile").write_text("FROM scratch\nADD base.tar /\n", encoding="ascii")
    unfinished = scratch / "image.tar"

    buildah = [
        "buildah",
        f"--root={scratch / 'storage'}",
        f"--runroot={scratch / 'run'}",
        f"--storage-driver={_storage_driver(scratch)}",
    ]
    build = [*buildah, "build", "--pull-never"]
    volumes = [f"--volume={volume}" for volume in pip_settings.volumes(scratch)]
    steps = (
        [*build, f"--tag={BASE_NAME}", str(context)],
        [
            *build,
            "--isolation=chroot",  # needs no cgroups
            "--network=host",
            *volumes,
            f"--build-arg=PYTHON_IMAGE={BASE_NAME}",
            f"--ignorefile={sources.IGNORE_FILE}",
            f"--file={sources.CONTAINERFILE}",
            f"--tag={NAME}",
            str(ROOT),
        ],
        [*buildah, "push", "--quiet", NAME, f"docker-archive:{unfinished}:{NAME}"],
    )
    for step in steps:
        commands.run(step, title=TITLE, scratch=scratch, say=say)
    return unfinished


def _storage_driver(scratch: Path) -> str:
    """`overlay` where the file system allows it. `vfs` works on every one, and copies all files for each layer."""
    directories = {name: scratch / f"overlay-{name}" for name in ("lower", "upper", "work", "all")}
    for directory in directories.values():
        directory.mkdir()
    options = ",".join(f"{name}dir={directories[name]}" for name in ("lower", "upper", "work"))
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(directories["all"])]
    trial = subprocess.run([*commands.NAMESPACES, "--", *mount], capture_output=True, check=False)
    return "overlay" if trial.returncode == 0 else "vfs"


def _forget_oldest(place: Path) -> None:
    """Removes the archives that were asked for longest ago."""
    archives = sorted(place.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[KEPT:]:
        path.unlink()


if __name__ == "__main__":
    sys.exit(go_build.printed([archive]))
