"""The support bundle: what it holds, and that planted secrets are not in it."""

import tarfile
from pathlib import Path

import pytest
from orjson import dumps, loads

from reprise.triage.bundle import pack
from reprise.triage.secrets import MASK, Masker, without_secrets

PLANTED = {
    "environment": "correct-horse-battery",
    "wandb": "local-0123456789abcdef0123456789abcdef01234567",
    "hub": "hf_" + "aB3" * 12,
    "bearer": "abcDEF123456.ghi",
    "url": "hunter22",
    "signed": "Zm9vYmFyMTIz",
    "password": "s3cr3t-passw0rd",
    "github": "ghp_" + "a1B2" * 9,
    "pem": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "token": "A1b2C3d4E5f6G7h8",
}
LINES = f"""\
WANDB_API_KEY={PLANTED["wandb"]}
ray init kwargs: {{'env_vars': {{'HF_TOKEN': '{PLANTED["hub"]}', 'NCCL_DEBUG': 'INFO'}}}}
Authorization: Bearer {PLANTED["bearer"]}
cloning https://user:{PLANTED["url"]}@example.org/x.git
GET https://example.org/x?X-Amz-Signature={PLANTED["signed"]}&X-Amz-Expires=60
db_password: {PLANTED["password"]}
push with {PLANTED["github"]}
the value alone: {PLANTED["environment"]}
-----BEGIN RSA PRIVATE KEY-----
{PLANTED["pem"]}
-----END RSA PRIVATE KEY-----
RAY_AUTH_TOKEN={PLANTED["token"]}
step:3 - token_count:8192 - actor/pg_loss:0.1
max_tokens=10240 eos_token_id: 151645 tokenizer=Qwen2TokenizerFast pad_token: <|endoftext|>
Traceback (most recent call last):
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "hy3" / "20260802T100000Z-abc123"
    (folder / "logs" / "attempt-1" / "n2").mkdir(parents=True)
    (folder / "metrics").mkdir()
    (folder / "logs" / "attempt-1.log").write_text(LINES)
    (folder / "logs" / "attempt-1" / "n2" / "worker-1.err").write_text(LINES)
    (folder / "run.json").write_bytes(dumps({"id": "x", "token": PLANTED["token"]}))
    (folder / "config.yaml").write_text(f"api_key: {PLANTED['password']}\ntrainer: {{nnodes: 2}}\n")
    (folder / "secrets.json").write_text(PLANTED["hub"])
    (folder / "logs" / "secrets.env").write_text(PLANTED["hub"])
    (folder / "metrics" / "attempt-1.jsonl").write_text('{"step": 1, "data": {"a": 1.0}}\n')
    return folder


def test_no_planted_secret_is_in_the_archive(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.tar.gz"
    masker = Masker([PLANTED["environment"]])
    packed = pack(run, target, {"root": {"text": LINES}}, masker, [])
    names, texts = [], []
    with tarfile.open(target) as archive:
        for member in archive.getmembers():
            names.append(member.name.partition("/")[2])
            file = archive.extractfile(member)
            assert file is not None
            texts.append(file.read().decode())
    whole = "\n".join(texts)
    assert [name for name, value in PLANTED.items() if value in whole] == []
    assert {
        "run.json",
        "config.yaml",
        "triage.json",
        "machine.json",
        "logs/attempt-1.log",
        "logs/attempt-1/n2/worker-1.err",
        "metrics/attempt-1.jsonl",
    } <= set(names)
    assert not any("secrets" in name for name in names)
    assert any("secrets.env" in text for text in packed.left_out)
    assert masker.count >= 2 * (len(PLANTED) - 1)
    assert target.stat().st_mode & 0o077 == 0


def test_what_is_no_secret_stays(run: Path) -> None:
    kept = LINES.splitlines()[-3:]
    assert without_secrets("\n".join(kept)) == "\n".join(kept)
    assert "NCCL_DEBUG': 'INFO'" in without_secrets(LINES)
    assert MASK in without_secrets(LINES)


def test_json_stays_json(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.tar.gz"
    pack(run, target, {"root": {"text": LINES}}, Masker(), [])
    with tarfile.open(target) as archive:
        for member in archive.getmembers():
            if member.name.endswith(".json"):
                file = archive.extractfile(member)
                assert file is not None
                loads(file.read())


def test_a_packed_log_is_masked_too(run: Path, tmp_path: Path) -> None:
    import gzip

    (run / "logs" / "old.log.gz").write_bytes(gzip.compress(LINES.encode()))
    target = tmp_path / "out.tar.gz"
    pack(run, target, {}, Masker([PLANTED["environment"]]), [])
    with tarfile.open(target) as archive:
        [member] = [item for item in archive.getmembers() if item.name.endswith("logs/old.log")]
        file = archive.extractfile(member)
        assert file is not None
        text = file.read().decode()
    assert "step:3" in text and PLANTED["hub"] not in text
