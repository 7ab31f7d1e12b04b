"""Token counts without transformers, against transformers itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from reprise.core.errors import CannotTell
from reprise.data.check.check import Inputs, check_files
from reprise.data.check.router import find_router
from reprise.data.check.settings import Settings
from reprise.data.check.tokens import ChatTokenizer

from .inputs import row, verl_tree, write_parquet

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"
# What real templates use: loops, tests, tojson, trimmed blocks, an error, a generation block.
TEMPLATE = """{%- if messages[0]['role'] == 'system' %}
    {{- '<s>' + messages[0]['content'] }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' and loop.first %}{{ raise_exception('a tool cannot begin') }}{% endif %}
    {%- if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}
    {%- elif m['role'] != 'system' %}
        {{- '<' + m['role'] + '>' + m['content'] + (m.extra | tojson if m.extra else '') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ eos_token }}<assistant>{% endif %}
"""
PROMPTS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "one two three"}],
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": "  a\n\nb  "}],
    [{"role": "user", "content": "答案 是 42"}, {"role": "assistant", "content": "42"},
     {"role": "user", "content": "sure?", "extra": {"k": ["ü", 1]}}],
]  # fmt: skip


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tokenizer"
    made.mkdir()
    inner = Tokenizer(models.WordLevel({"<unk>": 0, "one": 1, "two": 2}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    inner.enable_truncation(4)
    inner.save(str(made / "tokenizer.json"))
    (made / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>",
                    "eos_token": {"content": "</s>", "__type": "AddedToken"},
                    "chat_template": TEMPLATE})
    )  # fmt: skip
    return made


def test_counts_and_refusals(folder: Path) -> None:
    tokenizer = ChatTokenizer(folder)
    refused = [{"role": "tool", "content": "x"}]
    lengths = tokenizer.lengths([PROMPTS[0], refused, PROMPTS[1]])
    # < user > one two three </ s >< assistant > : the saved truncation must not count.
    assert lengths[0] is not None and lengths[0] > 4
    assert lengths[1] is None
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert ChatTokenizer(folder).lengths([PROMPTS[0]]) == [3]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "[1"),
        ("tokenizer_config.json", "{}"),
        ("chat_template.jinja", "{% if %}"),
    ],
)
def test_folders_that_are_no_use(file: str, content: str, folder: Path) -> None:
    (folder / file).write_text(content)
    with pytest.raises(CannotTell) as caught:
        ChatTokenizer(folder)
    assert caught.value.rule == "data-length"


def test_exact_lengths_in_the_check(folder: Path, tmp_path: Path) -> None:
    router = find_router([verl_tree(tmp_path / "tree")])
    rows = [row("one " * n) for n in (1, 5, 1, 40)] + [row([{"role": "tool", "content": "x"}])]
    path = write_parquet(tmp_path / "a.parquet", rows)
    inputs = Inputs(router, Settings(max_prompt_length=20), ChatTokenizer(folder))
    report, (item,), _ = check_files("c", [path], [], inputs)
    tokens = item.lengths.tokens.tolist()
    assert tokens[0] == tokens[2] and tokens[3] - tokens[1] == 35 and tokens[4] == -1
    by_rule = {finding.rule: finding.message for finding in report.findings}
    assert "row 5" in by_rule["data-template"]
    assert "1 of 5 prompts" in by_rule["data-length"] and "row 4" in by_rule["data-length"]


_REAL = """
import json, sys
from transformers import AutoTokenizer
made = AutoTokenizer.from_pretrained(sys.argv[1])
found = [made.apply_chat_template(p, add_generation_prompt=True, tokenize=True, truncation=False)
         for p in json.load(sys.stdin)]
print(json.dumps([len(f["input_ids"] if hasattr(f, "keys") else f) for f in found]))
"""


@pytest.mark.rehearsal
def test_the_same_counts_as_transformers(folder: Path) -> None:
    answer = subprocess.run(
        [str(PYTHON), "-c", _REAL, str(folder)],
        input=json.dumps(PROMPTS),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert ChatTokenizer(folder).lengths(PROMPTS) == json.loads(answer.stdout.splitlines()[-1])
