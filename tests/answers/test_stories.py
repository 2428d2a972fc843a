"""`dovetail why` about every story: its cause, the verdict of the live scheduler, fixes that work, the form."""

from __future__ import annotations

import pytest

from dovetail.answer.why import cause_codes
from tests.answers import asking, judging, story_file

NAMES = story_file.names()
CHECKED = (judging.CAUSE, judging.VERDICT, judging.FIXES, judging.FORM, judging.TEXT)
# What is known to be wrong, and in which checks. A story that is answered well leaves the list.
KNOWN_FAULTS: dict[str, set[str]] = {}
MOST_WRONG_CAUSES = 0.05
MARKED = [
    pytest.param(name, marks=pytest.mark.slow) if story_file.is_large(name) else name
    for name in NAMES
]


@pytest.mark.parametrize("name", MARKED)
def test_an_answer_is_right(name: str) -> None:
    story = story_file.read(name)
    judgement = judging.judge(story, asking.ask(story), cause_codes.TABLE_NUMBER)
    wrong = {check for check in CHECKED if not judgement.is_right(check)}

    assert wrong == KNOWN_FAULTS.get(name, set()), judgement.findings


def test_few_causes_are_wrong() -> None:
    wrong = [name for name, checks in KNOWN_FAULTS.items() if judging.CAUSE in checks]

    assert set(NAMES) >= set(wrong)
    assert len(wrong) <= MOST_WRONG_CAUSES * len(NAMES)
