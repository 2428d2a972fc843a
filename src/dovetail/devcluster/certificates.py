"""Makes the keys and certificates of a local control plane with the `openssl` program.

Given a directory, writes a certificate authority into it and signs a server's and clients' certificates. The
keys guard scratch data on loopback: they are short-lived and never leave the directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.files import private_files

DAYS: Final = "365"
SERVER_NAMES: Final = (
    "IP:127.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
)


class OpensslMissing(errors.DovetailError):
    """There is no `openssl` on PATH."""


class OpensslFailed(errors.DovetailError):
    """`openssl` refused; the message holds what it said."""


class Pair(NamedTuple):
    """A certificate and its key, both PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in one directory, made on first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.pair = Pair(directory / "ca.crt", directory / "ca.key")
        if not self.pair.certificate.exists():
            private_files.make_directory(directory, option="--dir")
            _new_key(self.pair.key)
            _openssl("req", "-x509", "-new", "-key", self.pair.key, "-out", self.pair.certificate, "-days", DAYS,
                     "-subj", "/CN=dovetail-local-ca")  # fmt: skip

    def server(self, name: str) -> Pair:
        """A certificate for servers on loopback."""
        return self._signed(
            name,
            "/CN=kube-apiserver",
            f"subjectAltName={SERVER_NAMES}\nextendedKeyUsage=serverAuth",
        )

    def client(self, name: str, groups: Sequence[str] = ()) -> Pair:
        """A certificate that says its bearer is this user, member of these groups."""
        subject = "".join([*(f"/O={_escaped(group)}" for group in groups), f"/CN={_escaped(name)}"])
        return self._signed(
            _file_name("client-" + "-".join([name, *groups])),
            subject,
            "extendedKeyUsage=clientAuth",
        )

    def _signed(self, file: str, subject: str, extensions: str) -> Pair:
        pair = Pair(self._directory / f"{file}.crt", self._directory / f"{file}.key")
        if pair.certificate.exists():
            return pair
        request, options = self._directory / f"{file}.csr", self._directory / f"{file}.ext"
        private_files.replace(options, f"{extensions}\n".encode())
        _new_key(pair.key)
        _openssl("req", "-new", "-key", pair.key, "-out", request, "-subj", subject)
        _openssl("x509", "-req", "-in", request, "-out", pair.certificate, "-days", DAYS, "-extfile", options,
                 "-CA", self.pair.certificate, "-CAkey", self.pair.key, "-CAcreateserial")  # fmt: skip
        request.unlink()
        options.unlink()
        return pair


def signing_key(private: Path, public: Path) -> None:
    """Writes the two halves of a key that signs service account tokens."""
    _new_key(private)
    _openssl("pkey", "-in", private, "-pubout", "-out", public)


def _new_key(path: Path) -> None:
    """An elliptic curve key: made in milliseconds, where RSA takes up to a second."""
    path.unlink(missing_ok=True)
    os.close(private_files.create(path))  # openssl keeps the mode of a file that is there
    _openssl(
        "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", path
    )


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("/", "\\/")


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)


def _openssl(*arguments: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise OpensslMissing(
            "the certificates of a local control plane need `openssl`, which is not on PATH; install it"
        )
    words = [program, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - no shell reads it
    if done.returncode != 0:
        raise OpensslFailed(f"openssl {arguments[0]} failed: {done.stderr.strip()[-400:]}")
