"""Secrets in URLs never reach a report."""

from __future__ import annotations

import pytest

from reprise.core.findings import Report, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:hush@host/x", "https://***@host/x"),
        ("https://me:hu@sh@host/x", "https://***@host/x"),
        ("https://me:hu/sh@host:8080/x", "https://***@host:8080/x"),
        ("https://me:hu/s@h@host", "https://***@host"),
        ("https://hush@host/x", "https://***@host/x"),
        ("https://:hush@host", "https://***@host"),
        ("see https://h/f?token=hush&x=1 now", "see https://h/f?token=***&x=1 now"),
        ("https://h/f?x=1&X-Amz-Signature=hush", "https://h/f?x=1&X-Amz-Signature=***"),
        ("https://h/f?access_token=hush#a", "https://h/f?access_token=***#a"),
        ("https://h/f?api_key=hush", "https://h/f?api_key=***"),
        # No secret in these.
        ("git+https://host/repo@main", "git+https://host/repo@main"),
        ("https://host:8080/repo@v1", "https://host:8080/repo@v1"),
        ("user@host and a@b", "user@host and a@b"),
        ("image@sha256:0f3c", "image@sha256:0f3c"),
        ("https://h/f?revision=main", "https://h/f?revision=main"),
    ],
)
def test_secrets_in_urls(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
    report = Report("x")
    report.failed("core.x", text, text, "fix")
    assert "hush" not in str(report.to_json())
