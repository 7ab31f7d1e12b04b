"""Check every launch script of a folder in one process: verdicts, errors by rule, and the time.

    .venv/bin/python benchmarks/recipe/scripts.py VERL [--only FILE] [--errors] [--out FILE]

VERL is a checkout of verl; `--only` names a file with one path a line (relative to the folder).
Scripts that start nothing through Python are left out. Nothing of a script is executed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verl", type=Path)
    parser.add_argument("--only", type=Path)
    parser.add_argument("--errors", action="store_true", help="print every error")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from reprise.core.errors import OperatorError
    from reprise.core.project import Project, find_project
    from reprise.flows.script import ScriptInputs, check_script
    from reprise.recipe.script import read_script

    os.chdir(ROOT)
    project: Project = find_project()
    inputs = ScriptInputs(verl=options.verl or options.folder)
    paths = sorted(options.folder.rglob("*.sh"))
    if options.only:
        wanted = options.only.read_text().split()
        paths = [options.folder / name for name in wanted]
    verdicts: collections.Counter[str] = collections.Counter()
    rules: collections.Counter[str] = collections.Counter()
    errors, slowest, findings = [], ("", 0.0), 0
    launches, start = 0, time.process_time()
    for path in paths:
        if re.search(r"python|torchrun|bash|\.sh", path.read_text(errors="replace")) is None:
            continue
        began = time.process_time()
        try:
            report = check_script(project, read_script(path), inputs)
            launches += len(report.data["launches"])
        except OperatorError as error:
            report = error.report("recipe check")
        used = time.process_time() - began
        slowest = max(slowest, (str(path), used), key=lambda pair: pair[1])
        verdicts[str(report.exit_code)] += 1
        findings += len(report.findings)
        for finding in report.errors():
            rules[finding.rule] += 1
            errors.append(f"{finding.rule} {finding.where}: {finding.message}")
    used = time.process_time() - start
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "scripts": sum(verdicts.values()),
        "launches": launches,
        "exit_codes": dict(sorted(verdicts.items())),
        "findings": findings,
        "errors": len(errors),
        "errors_by_rule": dict(rules.most_common()),
        "cpu_s": round(used, 1),
        "slowest_cpu_s": round(slowest[1], 2),
        "slowest": os.path.relpath(slowest[0], options.folder),
    }
    if options.errors:
        for text in errors:
            sys.stdout.write(text.replace(f"{options.folder}/", "") + "\n")
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
