"""References, verdict and report: does a run train like the recorded ones?

Every check of the verdict belongs here, with its error rates.
"""

from reprise.curves.judge import Judgement, Outcome, judge_run
from reprise.curves.reference import Reference, load_reference
from reprise.curves.report import write_report

__all__ = ["Judgement", "Outcome", "Reference", "judge_run", "load_reference", "write_report"]
