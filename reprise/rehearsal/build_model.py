"""Build a tiny model of a real architecture, warm-started on toy arithmetic.

Run by the rehearsal's Python (torch, transformers, tokenizers, pyarrow), alone:

    python build_model.py OUT --train train.parquet --arch SHAPE --model-seed 0

OUT gets config, weights, tokenizer and provenance.json; it must not exist, and appears only when
complete. Standard output is one JSON object a line, the progress; errors go to standard error.
The same machine, versions and settings give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import string
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tokenizers
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<pad>", "<eos>", "<unk>", "<user>", "<assistant>", "<system>")
CHARACTERS = "0123456789+-*/=?.,:;!()[]{} \n#'\"<>|_" + string.ascii_letters
VOCABULARY_SIZE = 128
PAD, EOS = 0, 1
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ '<eos>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)

Example = tuple[list[int], str]


@dataclass(frozen=True)
class Settings:
    """What shapes the weights: all of it is recorded, and all of it is in the cache key."""

    arch: str
    model_seed: int
    steps: int
    noisy_steps: int
    batch: int
    lr: float
    wrong: float
    hidden: int
    layers: int
    head_dim: int


# Classes and the fields that only one of them has; shapes.toml explains the keys.
_READ = tomllib.loads(Path(__file__).with_name("shapes.toml").read_text(encoding="utf-8"))


def shape_fields(s: Settings) -> dict[str, Any]:
    """The fields of the configuration that only this shape has."""
    shape = _READ["shape"][s.arch]
    halves = dict.fromkeys(shape.get("half_hidden", []), s.hidden // 2)
    return {**shape.get("fields", {}), **halves}


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A tokenizer with one token a character, three role tokens, and its chat template."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    while len(vocabulary) < VOCABULARY_SIZE:
        vocabulary[f"<extra{len(vocabulary)}>"] = len(vocabulary)
    unknown = SPECIAL[2]
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=SPECIAL[PAD],
        eos_token=SPECIAL[EOS],
        unk_token=unknown,
        additional_special_tokens=list(SPECIAL[3:]),
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(s: Settings) -> Any:
    """The untrained model in fp32, random from `model_seed`."""
    shape = _READ["shape"][s.arch]
    config = getattr(transformers, shape["config"])(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=s.hidden,
        intermediate_size=2 * s.hidden,
        num_hidden_layers=s.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=s.head_dim or s.hidden // 4,
        max_position_embeddings=512,
        initializer_range=0.02,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        pad_token_id=PAD,
        eos_token_id=EOS,
        tie_word_embeddings=False,
        dtype="float32",
        **shape_fields(s),
    )
    config.architectures = [shape["model"]]
    torch.manual_seed(s.model_seed)
    return getattr(transformers, shape["model"])(config).float()


def read_examples(path: Path, tokenizer: Any) -> list[Example]:
    """Each training row as (prompt tokens, right answer)."""
    rows = pq.read_table(path, columns=["prompt", "reward_model"]).to_pylist()
    return [
        (
            tokenizer.apply_chat_template(
                row["prompt"], tokenize=True, add_generation_prompt=True, return_dict=False
            ),
            row["reward_model"]["ground_truth"],
        )
        for row in rows
    ]


def collate(pairs: list[Example], tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded (tokens, labels), each (batch, length) int64; labels only on the answer."""
    rows = [
        (prompt, [*tokenizer(answer, add_special_tokens=False)["input_ids"], EOS])
        for prompt, answer in pairs
    ]
    length = max(len(prompt) + len(target) for prompt, target in rows)
    tokens = torch.full((len(rows), length), PAD)
    labels = torch.full((len(rows), length), -100)
    for index, (prompt, target) in enumerate(rows):
        end = len(prompt) + len(target)
        tokens[index, :end] = torch.tensor(prompt + target)
        labels[index, len(prompt) : end] = torch.tensor(target)
    return tokens, labels


def batches(s: Settings, examples: list[Example]) -> Iterator[list[Example]]:
    """`steps` batches of right answers, then `noisy_steps` in which a share `wrong` of the answers
    is another row's.

    The first part teaches addition, the second makes the model unsure of every answer alike:
    reinforcement then has the same thing to do on all problems, so the reward rises smoothly and
    depends little on the order of the data.
    """
    draw = random.Random(s.model_seed)  # noqa: S311 - a reproducible order, not a secret
    answers = [answer for _, answer in examples]
    for step in range(s.steps + s.noisy_steps):
        wrong = s.wrong if step >= s.steps else 0.0
        yield [
            (prompt, draw.choice(answers) if draw.random() < wrong else answer)
            for prompt, answer in draw.choices(examples, k=s.batch)
        ]


def warm_start(model: Any, s: Settings, examples: list[Example], tokenizer: Any) -> None:
    """Supervised steps on the answers, the learning rate falling to zero on a straight line."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr)
    total = s.steps + s.noisy_steps
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=total)
    model.train()
    for step, batch in enumerate(batches(s, examples), start=1):
        tokens, labels = collate(batch, tokenizer)
        loss = model(input_ids=tokens, attention_mask=(tokens != PAD).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step == total:
            say(step=step, of=total, loss=round(loss.item(), 4))
    model.eval()


@torch.no_grad()
def expected_reward(model: Any, examples: list[Example], tokenizer: Any) -> float:
    """Mean over the rows of the probability of exactly the right answer, sampling at
    temperature 1: the reward that training starts from, without sampling noise."""
    tokens, labels = collate(examples, tokenizer)
    logits = model(input_ids=tokens, attention_mask=(tokens != PAD).long()).logits[:, :-1]
    wanted = labels[:, 1:]
    chosen = torch.log_softmax(logits.float(), -1).gather(-1, wanted.clamp(min=0)[..., None])
    per_row = (chosen[..., 0] * (wanted >= 0)).sum(-1)
    return float(per_row.exp().mean())


def save(folder: Path, model: Any, tokenizer: Any, record: dict[str, Any]) -> None:
    """Config, weights, tokenizer and provenance into `folder`."""
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=EOS, pad_token_id=PAD, do_sample=True
    )
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    record["weights_sha256"] = digest(folder / "model.safetensors")
    text = json.dumps(record, indent=2, sort_keys=True) + "\n"
    (folder / "provenance.json").write_text(text)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def say(**event: Any) -> None:
    """One line of progress."""
    print(json.dumps(event), flush=True)


def build(out: Path, train: Path, s: Settings) -> None:
    """Make the model and put it in place in one rename."""
    torch.set_num_threads(1)  # the order of a sum depends on the number of threads
    torch.use_deterministic_algorithms(True)
    tokenizer = make_tokenizer()
    model = make_model(s)
    examples = read_examples(train, tokenizer)
    warm_start(model, s, examples, tokenizer)
    record = {
        "settings": asdict(s),
        "shape": _READ["shape"][s.arch],
        "train_sha256": digest(train),
        "builder_sha256": digest(Path(__file__)),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "expected_reward": round(expected_reward(model, examples, tokenizer), 6),
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part"))
    try:
        save(part, model, tokenizer, record)
        part.chmod(0o755)
        for file in part.iterdir():
            with file.open("rb+") as stream:
                os.fsync(stream.fileno())
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    say(done=str(out), **record)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--train", type=Path, required=True, help="parquet with verl's rows")
    parser.add_argument("--arch", choices=sorted(_READ["shape"]), default=_READ["default"])
    parser.add_argument("--model-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500, help="steps on right answers")
    parser.add_argument("--noisy-steps", type=int, default=100, help="steps with wrong answers")
    parser.add_argument("--batch", type=int, default=64, help="rows a supervised step")
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--wrong", type=float, default=0.5, help="share of wrong answers")
    parser.add_argument("--hidden", type=int, default=128, help="hidden size, a multiple of 8")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=0, help="0: a quarter of the hidden size")
    return parser.parse_args(arguments)


def main() -> int:
    """Build, and speak to the operator when that is not possible."""
    given = vars(parse())
    out, train = given.pop("out"), given.pop("train")
    if out.exists():
        print(f"{out}: exists already; name a new folder or remove it", file=sys.stderr)
        return 1
    if not train.is_file():
        print(f"{train}: no such file; make the toy data first", file=sys.stderr)
        return 1
    build(out, train, Settings(**given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
