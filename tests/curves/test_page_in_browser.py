"""The page in a real browser: three widths, light and dark, keys. Skipped without Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from curves.runs import records, write, write_reference
from reprise.curves import judge_run, load_reference, write_report
from reprise.metrics import read_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

PROBE = """<!doctype html><body style="margin:0"><iframe style="border:0;width:%dpx;height:900px"
 src="report.html"></iframe><pre id="found"></pre><script>
document.querySelector("iframe").onload = (event) => {
  const page = event.target.contentDocument, view = event.target.contentWindow;
  const figure = page.querySelector(".chart"), output = figure.querySelector("output");
  const before = output.textContent;
  const press = (key) => figure.dispatchEvent(
    new view.KeyboardEvent("keydown", {key, bubbles: true}));
  figure.focus(); press("ArrowLeft");
  const read = output.textContent; press("+");
  const zoomed = figure.querySelector(".plot").getAttribute("viewBox"); press("0");
  const text = view.getComputedStyle(page.body), box = page.documentElement;
  document.querySelector("#found").textContent = JSON.stringify({
    scroll: box.scrollWidth, client: box.clientWidth, text: text.color, back: text.backgroundColor,
    before, read, zoomed, reset: figure.querySelector(".plot").getAttribute("viewBox"),
    wide: [...page.querySelectorAll("svg.plot, table, code")].filter(
      (item) => item.getBoundingClientRect().right > box.clientWidth + 1).length,
  });
};</script></body>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    reference = load_reference(write_reference(folder / "toy/reference", 6))
    table = read_run(write(folder / "run.jsonl", records(77, rate=0.0)))
    write_report(folder, judge_run(table, reference, 40), table, reference, {"seed": 77})
    return folder


def probe(folder: Path, width: int, dark: bool) -> dict[str, Any]:
    file = folder / f"probe-{width}-{dark}.html"
    file.write_text(PROBE % width)
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={folder / 'profile'}", "--allow-file-access-from-files"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command += ["--virtual-time-budget=5000", "--window-size=1400,1000", "--dump-dom"]
    done = subprocess.run(
        [*command, file.as_uri()], capture_output=True, text=True, timeout=300, check=True
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None and found[1], done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(html.unescape(found[1]))
    return answer


def light(colour: str) -> float:
    """Perceived lightness of an rgb() colour, 0 to 1."""
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    return 0.21 * red + 0.72 * green + 0.07 * blue


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1280])
def test_the_page_fits_and_reads(folder: Path, width: int, dark: bool) -> None:
    found = probe(folder, width, dark)
    # A scroll bar takes up to 16 pixels.
    assert found["scroll"] <= found["client"] and width - 16 <= found["client"] <= width
    assert found["wide"] == 0
    assert (light(found["back"]) < 0.3) is dark
    assert (light(found["text"]) > 0.7) is dark
    assert found["read"].startswith("step ") and found["read"] != found["before"]
    assert "this run" in found["read"] and "seed 1" in found["read"]
    assert found["zoomed"] != found["reset"] == "0 0 1000 1000"
