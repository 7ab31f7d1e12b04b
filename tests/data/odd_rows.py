"""Hypothesis strategies: rows as users have them, from sound to absurd."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from hypothesis import strategies as st

text = st.text(max_size=12)
words = st.sampled_from(["q", "1+1?", " ", "", "答案", "ﬁ", "\u0000", "a\r\nb", "x" * 50])
whole = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**70)])
)
scalars = st.one_of(st.none(), st.booleans(), whole, st.floats(width=32), text, words)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(text | words, inner, max_size=3)
    ),
    max_leaves=8,
)


def _deep(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


absurd = st.one_of(
    json_values,
    st.sampled_from([_deep(20), _deep(200), b"bytes", datetime.date(2026, 1, 1), object(), 1j]),
    st.just("\ud800"),
    st.lists(json_values, max_size=3).map(lambda v: np.array(v, dtype=object)),
    st.just(np.array([{"role": "user", "content": "q"}], dtype=object)),
    st.just(np.array([[1, 2], [3, 4]])),
    st.just(np.int64(3)) | st.just(np.float64("nan")) | st.just(np.bool_(True)),
)

roles = st.sampled_from(["user", "system", "assistant", "tool", "human", "", "User"])
contents = words | text


def _messages(role: st.SearchStrategy[Any], content: st.SearchStrategy[Any]) -> Any:
    return st.lists(st.fixed_dictionaries({"role": role, "content": content}), max_size=3)


def rows(odd: st.SearchStrategy[Any], rate: int) -> Any:
    """Five-field rows in which each value is odd once in about `rate` times."""

    def often(sound: Any) -> Any:
        return st.integers(0, rate).flatmap(lambda n: odd if n == 0 else sound)

    sound_role = st.sampled_from(["user", "system", "user"])
    return st.fixed_dictionaries(
        {
            "data_source": often(st.sampled_from(["math_dapo", "openai/gsm8k", "aime_x"])),
            "prompt": often(_messages(often(sound_role), often(contents))),
            "reward_model": often(
                st.fixed_dictionaries({"style": st.just("rule"), "ground_truth": often(contents)})
            ),
        },
        optional={
            "ability": often(st.just("math")),
            "extra_info": often(
                st.fixed_dictionaries({"index": often(st.integers(0, 9))}, optional={"more": odd})
            ),
        },
    )
