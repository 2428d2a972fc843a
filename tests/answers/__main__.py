"""Judges `dovetail why` by all stories, or by some: `python -m tests.answers [--story NAME]... [--brief]`.

Prints every fault under its story, then how many stories are right in each check, in all and by class of cause. With
`--brief` the counts alone. Exit 1 if the named causes are right in fewer than 95 of 100 stories, or if a verdict, a
suggestion or the form of an answer is wrong anywhere. Sentences may lack words and suggestions may be missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dovetail.answer.why import cause_codes
from tests.answers import asking, judging, story_file

GOAL: Final = 0.95  # of the causes; everything else has to be right everywhere
STRICT: Final = (judging.VERDICT, judging.FIXES, judging.FORM, judging.TEXT)

Say = Callable[[str], object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Judges and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.answers")
    parser.add_argument("--story", action="append", default=[], help="names begin with this")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args(arguments)
    names = [name for name in story_file.names() if name.startswith(tuple(options.story) or "")]
    judgements = []
    for name in names:
        story = story_file.read(name)
        judgement = judging.judge(story, asking.ask(story), cause_codes.TABLE_NUMBER)
        judgements.append(judgement)
        if not options.brief:
            _print_findings(story, judgement)
    for line in summary(judgements):
        print(line)
    return 0 if is_good(judgements) else 1


def is_good(judgements: Sequence[judging.Judgement]) -> bool:
    """Whether the answers meet the goals."""
    causes = sum(item.is_right(judging.CAUSE) for item in judgements)
    is_strict_right = all(item.is_right(check) for item in judgements for check in STRICT)
    return causes >= GOAL * len(judgements) and is_strict_right


def summary(judgements: Sequence[judging.Judgement]) -> Iterable[str]:
    """How many stories are right, check by check."""
    count = len(judgements)
    for check in judging.CHECKS:
        right = sum(item.is_right(check) for item in judgements)
        yield f"{check:12} {right:4} of {count}"
    yield f"{'fixes tried':12} {sum(item.fixes_tried for item in judgements):4}"


def _print_findings(story: story_file.Story, judgement: judging.Judgement) -> None:
    for finding in judgement.findings:
        print(f"{story.name}: {finding.check}: {finding.text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
