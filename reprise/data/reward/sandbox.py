"""The sandbox that runs programs for verl's scorer, where a recipe names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from reprise.core.findings import Report
from reprise.data.check.settings import Settings
from reprise.data.reward.answers import tests_of
from reprise.data.reward.run import Probe

__all__ = ["with_sandbox"]

_SECONDS = 5.0
_GATEWAY = (502, 503, 504)
_MEMORY_MIB = 1024  # verl's default, trainer/config/reward/reward.yaml


def with_sandbox(
    report: Report, wanted: Sequence[Probe], settings: Settings
) -> tuple[list[Probe], Mapping[str, Any]]:
    """The probes to score, and what verl's own scorer is called with besides.

    verl gives every program the score 0 when the sandbox cannot be reached, which would look like
    wrong tests: those rows are then left out, and `reward-sandbox` is unknown. A custom function
    is called as the recipe says and knows of no sandbox of verl's.
    """
    url = settings.sandbox_url
    if url is None or settings.custom_reward is not None:
        return list(wanted), settings.reward_kwargs
    programs = [probe for probe in wanted if tests_of(probe.ground_truth) is not None]
    if programs and (reason := _unreachable(url)):
        report.unknown(
            "reward-sandbox.sandbox-reward-sandbox",
            url,
            reason=reason,
            programs_count=len(programs),
        )
        return [probe for probe in wanted if probe not in programs], settings.reward_kwargs
    if programs:
        report.passed("reward-sandbox")
    memory = settings.sandbox_memory or _MEMORY_MIB
    return list(wanted), {"sandbox_fusion_url": url, "memory_limit_mb": memory}


def _unreachable(url: str) -> str:
    """Why the sandbox gives no answer at all, or ''; a refusal of GET is an answer."""
    try:
        answer = httpx.get(url, timeout=_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__
    return f"HTTP {answer.status_code}" if answer.status_code in _GATEWAY else ""
