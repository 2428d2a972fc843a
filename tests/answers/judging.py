"""Judges an answer of `dovetail why` by its story: cause, verdict, suggestions, form.

Given a story and the replies to its question. Each check yields findings in words: no finding, no fault. What the live
scheduler does is asked of it (`live_checks`), never taken from the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tests.answers import answer_form, asking, live_checks, story_file

STARTS: Final = "starts"
CAUSE: Final = "cause"
WORDS: Final = "words"
VERDICT: Final = "verdict"
FIXES: Final = "fixes"
WANTED: Final = "wanted fix"
FORM: Final = "form"
TEXT: Final = "text"
CHECKS: Final = (CAUSE, WORDS, VERDICT, FIXES, WANTED, FORM, TEXT)


class Finding(msgspec.Struct, frozen=True):
    """A fault of an answer."""

    check: str
    text: str


class Judgement(msgspec.Struct, frozen=True):
    """What was found about one story."""

    story: str
    findings: list[Finding]
    answer: answer_form.Answer | None = None
    fixes_tried: int = 0

    def is_right(self, check: str) -> bool:
        """Whether nothing was found in a check."""
        return not any(finding.check == check for finding in self.findings)


def judge(
    story: story_file.Story, replies: asking.Replies, table_numbers: Mapping[str, int]
) -> Judgement:
    """Everything that is wrong with the replies. `table_numbers` are the rows of the codes of causes."""
    try:
        answer = answer_form.read(replies.json.out)
    except msgspec.MsgspecError as error:
        said = (replies.json.err or replies.json.out).strip()[:300]
        text = f"{error}; exit {replies.json.code}: {said}"
        faults = [Finding(FORM, text)]
        faults += [Finding(check, "no answer") for check in CHECKS if check != FORM]
        return Judgement(story.name, faults)

    live = live_checks.LiveStory(story)
    findings = [
        *_form_findings(replies, answer),
        *_cause_findings(story, answer, table_numbers),
        *_verdict_findings(story, answer, live),
        *_fix_findings(story, answer, live),
        *_wanted_fix_findings(story, answer),
    ]
    return Judgement(story.name, findings, answer, len(answer.fixes))


def _form_findings(replies: asking.Replies, answer: answer_form.Answer) -> Iterator[Finding]:
    expected_code = 0 if answer.schedulable else 1
    for run in (replies.json, replies.text):
        if run.code != expected_code:
            yield Finding(FORM, f"exit {run.code}, expected {expected_code}")
    if answer.cause is None and not answer.schedulable:
        yield Finding(FORM, "blocked without a cause")
    for problem in answer_form.printed_problems(replies.text.out):
        yield Finding(TEXT, problem)


def _cause_findings(
    story: story_file.Story, answer: answer_form.Answer, table_numbers: Mapping[str, int]
) -> Iterator[Finding]:
    planted, named = story.header.cause, answer.cause
    if planted is None:
        if named is not None and not answer.schedulable:
            yield Finding(CAUSE, f"nothing keeps it from starting; named: {named.sentence}")
        return
    if named is None:
        yield Finding(CAUSE, f"none named; expected {planted.class_} {list(planted.numbers)}")
        return

    number = table_numbers.get(named.code)
    is_class_right = named.class_ in (planted.class_, *planted.other_classes)
    is_code_right = number in planted.numbers and (number != 0 or named.code in planted.codes)
    if not is_class_right or not is_code_right:
        yield Finding(
            CAUSE,
            f"{named.class_} {named.code} (row {number}), expected {planted.class_} "
            f"{list(planted.numbers)}: {named.sentence}",
        )
    missing = [words for words in story.header.says if not _says(named.sentence, words)]
    if missing:
        yield Finding(WORDS, f"lacks {', '.join(missing)}: {named.sentence}")


def _verdict_findings(
    story: story_file.Story, answer: answer_form.Answer, live: live_checks.LiveStory
) -> Iterator[Finding]:
    does_start = live.starts() if story.header.live else story.header.verdict == STARTS
    if does_start != (story.header.verdict == STARTS):
        yield Finding(VERDICT, f"the story says {story.header.verdict}, the live scheduler differs")
    if answer.schedulable != does_start:
        yield Finding(VERDICT, f"schedulable is {answer.schedulable}, does start: {does_start}")


def _fix_findings(
    story: story_file.Story, answer: answer_form.Answer, live: live_checks.LiveStory
) -> Iterator[Finding]:
    """Every verified suggestion is carried out; the person it is addressed to must be able to make it."""
    for fix in answer.fixes:
        if not fix.verified:
            continue
        problem = live.problem_with(fix.patch)
        if problem:
            yield Finding(FIXES, f"{fix.title or fix.effect}: {problem}")


def _wanted_fix_findings(story: story_file.Story, answer: answer_form.Answer) -> Iterator[Finding]:
    wanted = story.header.fixes
    if wanted and not any(_is_in_substance(item, fix) for item in wanted for fix in answer.fixes):
        titles = "; ".join(f"{fix.who}: {fix.title or fix.effect}" for fix in answer.fixes)
        expected = " or ".join(f"{item.who} with {', '.join(item.words)}" for item in wanted)
        yield Finding(WANTED, f"expected one by {expected}; offered: {titles or 'none'}")
    doers = {fix.who for fix in answer.fixes}
    if doers and story.header.who and not doers & set(story.header.who):
        yield Finding(WANTED, f"for {sorted(doers)}, expected {list(story.header.who)}")


def _is_in_substance(wanted: story_file.Fix, fix: answer_form.Fix) -> bool:
    patch = msgspec.json.encode(fix.patch).decode()
    text = f"{fix.title} {fix.effect} {patch}"  # what is dropped is in no patch
    return fix.who == wanted.who and all(_says(text, words) for words in wanted.words)


def _says(text: str, words: str) -> bool:
    """Whether a text has one of the alternatives, which bars separate; case does not matter."""
    return any(word.lower() in text.lower() for word in words.split("|"))
