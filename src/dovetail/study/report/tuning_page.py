"""A tuning as one HTML page: what was found, what the held-out part says of it, and all trials as a picture.

Given the tuning; the same one gives the same bytes. Never runs anything.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Final

from dovetail.study.report import chart_scales, drawn_charts, page_frame
from dovetail.study.tuning import policy_settings, policy_tuning, tuning_objective

_STYLE: Final = """
.dot.other, i.other { fill: light-dark(#b6bcc8, #565d6b); background: light-dark(#b6bcc8, #565d6b); }
.dot.front, i.front { fill: light-dark(#2f6fb3, #6aa9ea); background: light-dark(#2f6fb3, #6aa9ea); }
.dot.usual, i.usual { fill: light-dark(#b3541e, #f0965c); background: light-dark(#b3541e, #f0965c); }
.dot.chosen, i.chosen { fill: light-dark(#0d7a3f, #4ade8a); background: light-dark(#0d7a3f, #4ade8a); }
.legend { position: static; } td:first-child { white-space: normal; }
"""
_KINDS: Final = {
    "other": "tried",
    "front": "tried, and no other one is better in everything",
    "usual": "the default",
    "chosen": "chosen by the score",
}
_MOST_ROWS: Final = 200


def page(tuning: policy_tuning.Tuning) -> str:
    """The whole page."""
    title = f"{tuning.study}: {len(tuning.trials)} settings"
    content = (
        f"<h1>{html.escape(title)}</h1>\n<p>{_summary(tuning)}</p>\n{_legend()}\n"
        + page_frame.section(
            "Held out",
            "The last part of the jobs, which the search never saw; it decides. Shaken copies move each "
            "submission a little at random.",
            _judgement(tuning),
        )
        + _pictures(tuning)
        + page_frame.section(
            "Trials",
            "On the part that was searched; the best score first. 1 is the default.",
            _trials(tuning),
        )
    )
    return page_frame.page(title, content, style=_STYLE)


def _summary(tuning: policy_tuning.Tuning) -> str:
    weights = ", ".join(f"{name} {weight:g}" for name, weight in tuning.objective.items())
    return (
        f"<strong>{html.escape(tuning.verdict)}</strong>. "
        f"{tuning.searched_jobs:,} jobs searched, {tuning.held_out_jobs:,} held out, "
        f"{tuning.gpus:,} GPUs, seed {tuning.seed}; score: {html.escape(weights)}. Simulated. "
        f"Chosen: {html.escape(policy_settings.said(tuning.changes))}."
    )


def _legend() -> str:
    entries = "".join(f'<label><i class="{kind}"></i>{text}</label>' for kind, text in _KINDS.items())  # fmt: skip
    return f'<div class="legend">{entries}</div>'


def _pictures(tuning: policy_tuning.Tuning) -> str:
    below = _scatter(
        tuning,
        lambda outcome: outcome.below_quota_gpu_hours,
        up="below quota, GPU-hours",
    )
    used = _scatter(tuning, lambda outcome: outcome.utilisation_pct, up="GPUs in use, percent")
    return page_frame.section(
        "Waiting and fairness",
        "Every trial on the searched part; further left and lower is better.",
        below,
    ) + page_frame.section(
        "Waiting and use of the GPUs",
        "Every trial on the searched part; further left and higher is better.",
        used,
    )


def _scatter(
    tuning: policy_tuning.Tuning, value: Callable[[tuning_objective.Outcome], float], *, up: str
) -> str:
    order = list(_KINDS)
    spots = [
        drawn_charts.Spot(
            trial.outcome.waiting_mean_s,
            value(trial.outcome),
            _kind(tuning, trial),
            policy_settings.said(trial.changes),
        )
        for trial in tuning.trials
    ]
    spots.sort(key=lambda spot: order.index(spot.kind))  # what matters most lies on top
    return drawn_charts.scatter(
        f"waiting and {up}", spots, across="mean waiting, seconds", up=up
    )  # fmt: skip


def _kind(tuning: policy_tuning.Tuning, trial: policy_tuning.Trial) -> str:
    if not trial.changes:
        return "usual"
    if trial.changes == tuning.changes:
        return "chosen"
    return "front" if trial.is_on_front else "other"


def _judgement(tuning: policy_tuning.Tuning) -> str:
    rows = [
        ("default, searched", 1.0, tuning.searched_default),
        ("chosen, searched", tuning.searched_score, tuning.searched),
        ("default, held out", 1.0, tuning.held_out_default),
        ("chosen, held out", tuning.held_out_score, tuning.held_out),
    ]
    cells = [[name, _score(score), *_figures(outcome)] for name, score, outcome in rows]
    cells += [
        [
            f"shaken copy, seed {shake.seed}",
            _score(shake.score),
            f"{chart_scales.duration(shake.waiting_mean_s)} "
            f"(default {chart_scales.duration(shake.default_waiting_mean_s)})",
        ]
        for shake in tuning.shakes
    ]
    return _table(("policy",), cells)


def _trials(tuning: policy_tuning.Tuning) -> str:
    ranked = sorted(tuning.trials, key=lambda trial: (trial.score is None, trial.score or 0.0))
    cells = [
        [
            policy_settings.said(trial.changes),
            str(trial.number),
            _score(trial.score),
            *_figures(trial.outcome),
        ]
        for trial in ranked[:_MOST_ROWS]
    ]
    return _table(("settings", "trial"), cells)


def _table(first: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = (*first, "score", "waiting", "1 GPU waits", "below quota GPU-h", "used %", "GPU-h lost",
             "evictions", "never started")  # fmt: skip
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _figures(outcome: tuning_objective.Outcome) -> list[str]:
    return [
        chart_scales.duration(outcome.waiting_mean_s),
        chart_scales.duration(outcome.small_waiting_mean_s),
        f"{outcome.below_quota_gpu_hours:g}",
        f"{outcome.utilisation_pct:g}",
        f"{outcome.lost_gpu_hours:g}",
        f"{outcome.evictions}",
        f"{outcome.never_started}",
    ]


def _score(score: float | None) -> str:
    return "jobs stay behind" if score is None else f"{score:.3f}"
