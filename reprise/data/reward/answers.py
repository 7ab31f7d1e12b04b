"""Made-up answers to a row: right ones, wrong ones and none, in every form that a scorer reads."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any

__all__ = ["FORMATS", "PROGRAMS", "answers_to", "tests_of"]

# Ways to write a final answer, one for each place where a scorer of verl looks (220e903,
# verl/utils/reward_score): bare, math_dapo, gsm8k, math_reward, search_r1, geo3k. A row's right
# answer is the one that scores best, so that no scorer needs to be known here.
FORMATS: Mapping[str, str] = {
    "bare": "{}",
    "answer line": "So we are done.\nAnswer: {}",
    "####": "So we are done.\n#### {}",
    "boxed": "So it is $\\boxed{{{}}}$.",
    "<answer>": "<think>Let us see.</think>\n<answer>{}</answer>",
    "think and boxed": "<think>Let us see.</think>\nIt is $\\boxed{{{}}}$.",
}

# Where the scorers of code look (prime_code takes a bare program too, sandbox_fusion does not).
PROGRAMS: Mapping[str, str] = {
    "bare": "{}",
    "code block": "This should do.\n```python\n{}\n```\n",
}


def answers_to(truth: object) -> dict[str, str]:
    """Right and wrong answers in every format ("right boxed": text), and the empty answer."""
    tests = tests_of(truth)
    if tests is None and isinstance(truth, Mapping) and "assert_case" in truth:
        return {"empty": ""}  # assertions about a program that nothing here can write
    if tests is None:
        right, wrong = _texts(truth)
        formats = FORMATS
    else:
        right, wrong = _program(tests), "import sys\nprint(len(sys.stdin.read()), 'is wrong')"
        formats = PROGRAMS
    made = {"empty": ""}
    for name, template in formats.items():
        made[f"right {name}"] = template.format(right)
        made[f"wrong {name}"] = template.format(wrong)
    return made


def _texts(truth: object) -> tuple[str, str]:
    """A right and a wrong answer for a ground truth (search rows hold their targets in a dict)."""
    if isinstance(truth, Mapping):
        truth = truth.get("target")
    if isinstance(truth, list | tuple) and truth:
        truth = truth[0]
    text = str(truth)
    try:
        return text, str(int(text) + 1)
    except ValueError:
        return text, "-987654321"


def tests_of(truth: object) -> dict[str, Any] | None:
    """The tests of a program that a ground truth holds (as APPS writes them), else None.

    That is a mapping, or JSON of one, with as many `inputs` as `outputs`; `fn_name` names the
    function to call, without which the program reads standard input.
    """
    if isinstance(truth, str) and truth.lstrip()[:1] == "{":
        try:
            truth = json.loads(truth)
        except ValueError:
            return None
    if not isinstance(truth, Mapping):
        return None
    inputs, outputs = truth.get("inputs"), truth.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        return None
    return dict(truth) if inputs and len(inputs) == len(outputs) else None


def _program(tests: Mapping[str, Any]) -> str:
    """A program that passes the tests: it knows their outputs by heart."""
    if tests.get("fn_name"):
        known = {_arguments(given): out for given, out in _pairs(tests)}
        return textwrap.dedent(
            f"""\
            import json
            KNOWN = json.loads({json.dumps(known)!r})
            def {tests["fn_name"]}(*given):
                return json.loads(KNOWN.get(json.dumps(given), "null"))"""
        )
    known = {given.strip(): out for given, out in _pairs(tests)}
    return textwrap.dedent(
        f"""\
        import json
        import sys
        known = json.loads({json.dumps(known)!r})
        print(known.get(sys.stdin.read().strip(), ""))"""
    )


def _pairs(tests: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Inputs and outputs as text; a list stands for its lines."""
    return [
        ("\n".join(map(str, given)) if isinstance(given, list) else str(given),
         "\n".join(map(str, out)) if isinstance(out, list) else str(out))
        for given, out in zip(tests["inputs"], tests["outputs"], strict=True)
    ]  # fmt: skip


def _arguments(lines: str) -> str:
    """Arguments, one JSON value a line, as the JSON list that the program builds of its own."""
    try:
        return json.dumps([json.loads(line) for line in lines.split("\n")])
    except ValueError:
        return lines
