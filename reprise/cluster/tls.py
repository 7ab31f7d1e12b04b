"""Certificates of a cluster whose Ray encrypts its gRPC connections (RAY_USE_TLS)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprise.cluster.record import Record
from reprise.core.errors import CannotTell
from reprise.core.files import write_text

__all__ = ["make_certificates", "tls_files", "tls_variables"]

_DAYS = "3650"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_SECONDS = 60.0
# By the variable that scripts/node_start.sh takes its text from.
_FILES = {"N_TLS_CA": "ca.crt", "N_TLS_CERT": "node.crt", "N_TLS_KEY": "node.key"}


def make_certificates(record: Record) -> None:
    """One certificate for all hosts of the record, spares too, and the authority that signed it.

    They are in the record's folder, readable by its owner alone. The authority's key is not
    kept: nobody can add a host later. Raises CannotTell without openssl on this machine.
    """
    tool = shutil.which("openssl")
    if tool is None:
        raise CannotTell("tls.no-openssl", "openssl")
    names = [*dict.fromkeys(node.ip for node in record.nodes), "127.0.0.1"]
    alternative = ",".join(["DNS:localhost", *(f"IP:{ip}" for ip in names)])
    with tempfile.TemporaryDirectory() as folder:
        # Readable by the owner alone, as mkdtemp makes it.
        Path(folder, "ext").write_text(f"subjectAltName={alternative}\n", encoding="utf-8")
        subject = f"/CN=reprise {record.id[:8]}"
        authority = ("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", _DAYS)
        signed = ("x509", "-req", "-in", "csr", "-CA", "ca.crt", "-CAkey", "ca.key")
        for words in (
            (*authority, "-subj", subject),
            ("req", *_KEY, "-keyout", "node.key", "-out", "csr", "-subj", f"{subject} node"),
            (*signed, "-CAcreateserial", "-days", _DAYS, "-extfile", "ext", "-out", "node.crt"),
        ):
            _openssl(tool, words, folder)
        target = _folder(record)
        target.mkdir(mode=0o700, exist_ok=True)
        for name in _FILES.values():
            write_text(target / name, Path(folder, name).read_text(encoding="utf-8"), mode=0o600)


def _openssl(tool: str, words: Sequence[str], folder: str) -> None:
    try:
        done = subprocess.run(
            [tool, *words],
            cwd=folder,
            # It must not ask on the operator's terminal.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        said = f"no answer within {_SECONDS:.0f} s"
    except OSError as error:
        said = error.strerror or str(error)
    else:
        if done.returncode == 0:
            return
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise CannotTell("tls.openssl-failed", tool, reason=said)


def tls_files(record: Record) -> dict[str, str]:
    """The texts of the certificate's files, by the variable of the start script; may be empty."""
    if not record.tls:
        return {}
    folder = _folder(record)
    return {
        name: (folder / file).read_text(encoding="utf-8").strip() for name, file in _FILES.items()
    }


def tls_variables(record: Record, folder: str) -> Mapping[str, str]:
    """Ray's variables for the files in `folder`; none without TLS."""
    if not record.tls:
        return {}
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_CA_CERT": f"{folder}/ca.crt",
        "RAY_TLS_SERVER_CERT": f"{folder}/node.crt",
        "RAY_TLS_SERVER_KEY": f"{folder}/node.key",
    }


def _folder(record: Record) -> Path:
    return record.folder / "tls"
