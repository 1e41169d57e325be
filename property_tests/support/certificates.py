"""Authorities and certificates for tests of TLS, made with the command `openssl` as docs/deploy.md shows it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=job")


def authority(folder: Path) -> Path:
    """A new authority: ca.crt and ca.key in the folder."""
    folder.mkdir()
    openssl("req", "-x509", *NEW, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt", at=folder)
    return folder


def certified(of: Path, folder: Path, names: str = "DNS:localhost,IP:127.0.0.1", days: int = 2) -> Path:
    """A folder with tls.crt, tls.key and ca.crt: a certificate for these names that the authority has signed.

    With days=-1 it has expired.
    """
    folder.mkdir(exist_ok=True)
    openssl("req", *NEW, "-addext", f"subjectAltName={names}", "-keyout", "tls.key", "-out", "csr", at=folder)
    signed = ("-CA", f"{of}/ca.crt", "-CAkey", f"{of}/ca.key", "-days", str(days), "-copy_extensions", "copy")
    openssl("x509", "-req", "-in", "csr", *signed, "-out", "tls.crt", at=folder)
    shutil.copy(of / "ca.crt", folder)
    return folder


def openssl(*words: str, at: Path) -> None:
    subprocess.run(["openssl", *words], cwd=at, check=True, capture_output=True)
