"""A comparison of policies as one HTML page: pictures first, the table last. Without scripts, loading nothing.

Given the comparison; the same one gives the same bytes. Every name is escaped. Colours follow the reader's light or
dark setting; the legend hides and shows policies. Never runs anything.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dovetail.study.queueing import comparison, run_figures
from dovetail.study.report import chart_scales, drawn_charts, page_frame

ENGINE: Final = "dovetail"
SMALL: Final = (480, 190)
_COLOURS: Final = (  # of policies in light and dark; the engine has its own
    ("#2f6fb3", "#6aa9ea"),
    ("#b3541e", "#f0965c"),
    ("#5b7f1d", "#a3cc5a"),
    ("#8a4fa3", "#cf97e6"),
    ("#a3140a", "#ff8f84"),
    ("#0f7c86", "#4fcbd6"),
    ("#8a6a00", "#e3bf4d"),
    ("#5c6370", "#aab2c0"),
    ("#b03a7a", "#f08fc0"),
    ("#3b3f9e", "#9aa0f5"),
)
_ENGINE_COLOUR: Final = ("#0d7a3f", "#4ade8a")

Result = comparison.PolicyResult
Field = Callable[[run_figures.Figures], float | None]


def page(compared: comparison.Comparison) -> str:
    """The whole page."""
    title = f"{compared.study}: {len(compared.policies)} policies"
    body = "\n".join(_sections(compared))
    return page_frame.page(
        title,
        f"<h1>{_escaped(compared.study)}</h1>\n"
        f"<p>{_summary(compared)}</p>\n{_legend(compared)}\n{body}",
        style=_colours(compared),
    )


def _sections(compared: comparison.Comparison) -> Iterator[str]:
    yield page_frame.section(
        "Waiting",
        "All time from submission without GPUs, also after evictions. "
        f"No policy can have a mean below {chart_scales.duration(compared.bound_waiting_s)}.",
        page_frame.pair(
            _bars(compared, "Mean", lambda each: each.waiting_mean_s, chart_scales.duration),
            _bars(compared, "95 of 100 jobs wait at most", lambda each: each.waiting_p95_s,
                  chart_scales.duration),
        ),
    )  # fmt: skip
    yield page_frame.section(
        "Who waits how long",
        "Percent of jobs that waited at most so long. Higher and further left is better.",
        _distribution(compared),
    )
    yield page_frame.section(
        "GPUs waited for",
        "GPUs of all waiting jobs over time.",
        _lines(compared, "GPUs waited for", lambda curves: curves.waiting_gpus),
    )
    yield page_frame.section(
        "GPUs in use",
        f"Of {compared.gpus:,} (dashed).",
        _lines(compared, "GPUs in use", lambda curves: curves.used_gpus, top=compared.gpus),
    )
    yield page_frame.section(
        "Idle GPUs while jobs wait",
        "The curve shows GPUs that stand idle while at least as many are waited for. Of no use: on nodes with too "
        "few free GPUs for any waiting pod.",
        _lines(compared, "idle while waited for", lambda curves: curves.idle_wanted_gpus)
        + page_frame.pair(
            _bars(
                compared,
                "Idle while waited for, GPU-hours",
                lambda each: each.idle_while_waiting_gpu_hours,
                chart_scales.amount,
            ),
            _bars(
                compared,
                "Of no use to any waiting pod, GPU-hours",
                lambda each: each.unusable_gpu_hours,
                chart_scales.amount,
            ),
        ),
    )
    yield page_frame.section(
        "Evictions",
        "Work since the last checkpoint is lost and done again.",
        page_frame.pair(
            _bars(compared, "Evictions", lambda each: float(each.evictions), chart_scales.amount),
            _bars(
                compared, "GPU-hours lost", lambda each: each.lost_gpu_hours, chart_scales.amount
            ),
        ),
    )
    if len(compared.quotas) > 1:
        yield _fairness(compared)
        yield _by_queue(compared)
    yield page_frame.section("Figures", "Waiting and time to the end in seconds.", _table(compared))


def _fairness(compared: comparison.Comparison) -> str:
    rows = {
        f"{queue} ({quota})": [
            (each.policy, _kind(number), each.figures.queues[queue].finish_time_mean)
            for number, each in enumerate(compared.policies)
        ]
        for queue, quota in compared.quotas.items()
    }
    dots = drawn_charts.points(
        "time to the end by that alone on the quota", rows, mark=1, say=lambda value: f"{value:.2f}"
    )
    return page_frame.section(
        "What queues gain or lose by sharing",
        "Time from submission to end by that alone on the queue's quota; left of the dashed line sharing is "
        "better than a partition. Below quota: GPU-hours in which fitting work waited. Jain: 1 if work of all "
        "queues is slowed alike.",
        dots
        + page_frame.pair(
            _bars(compared, "Below quota, GPU-hours", lambda each: each.below_quota_gpu_hours,
                  chart_scales.amount),
            _bars(compared, "Jain's index", lambda each: each.jain, lambda value: f"{value:.3f}"),
        ),
    )  # fmt: skip


def _by_queue(compared: comparison.Comparison) -> str:
    high = _longest(compared)
    width, height = SMALL
    charts = []
    for queue, quota in compared.quotas.items():
        series = [
            drawn_charts.Series(
                each.policy, _kind(number), each.queue_waiting_quantiles_s.get(queue, [])
            )
            for number, each in enumerate(compared.policies)
        ]
        chart = drawn_charts.distribution(
            f"waiting in {queue}",
            series,
            compared.quantiles_pct,
            high=high,
            width=width,
            height=height,
        )
        charts.append(f"<div><h3>{_escaped(queue)}, {quota} GPUs</h3>{chart}</div>")
    return page_frame.section("Waiting by queue", "As above, by queue.", page_frame.pair(*charts))


def _distribution(compared: comparison.Comparison) -> str:
    series = [
        drawn_charts.Series(each.policy, _kind(number), each.waiting_quantiles_s)
        for number, each in enumerate(compared.policies)
    ]
    return drawn_charts.distribution(
        "waiting", series, compared.quantiles_pct, high=_longest(compared)
    )


def _lines(
    compared: comparison.Comparison,
    title: str,
    values: Callable[[comparison.Curves], Sequence[float]],
    *,
    top: float | None = None,
) -> str:
    series = [
        drawn_charts.Series(each.policy, _kind(number), values(each.curves))
        for number, each in enumerate(compared.policies)
    ]
    return drawn_charts.lines(title, series, seconds=compared.until_s, top=top)


def _bars(
    compared: comparison.Comparison, title: str, value: Field, say: Callable[[float], str]
) -> str:
    amounts = []
    for number, each in enumerate(compared.policies):
        shown = value(each.figures)
        text = "none ended" if shown is None else say(shown)
        amounts.append(drawn_charts.Amount(each.policy, _kind(number), shown, text))
    return f"<div><h3>{_escaped(title)}</h3>{drawn_charts.bars(title, amounts)}</div>"


def _table(compared: comparison.Comparison) -> str:
    heads = ("policy", "waiting", "p95", "p99", "to the end", "used %", "evictions", "GPU-h lost",
             "Jain", "by alone", "by alone p95", "below quota GPU-h", "never started")  # fmt: skip
    rows = []
    for each in compared.policies:
        figures = each.figures
        rows.append((each.policy, figures.waiting_mean_s, figures.waiting_p95_s,
                     figures.waiting_p99_s, figures.jct_mean_s, figures.utilisation_pct, figures.evictions,
                     figures.lost_gpu_hours, figures.jain, figures.finish_time_mean, figures.finish_time_p95,
                     figures.below_quota_gpu_hours, figures.never_started))  # fmt: skip
    bounds = (compared.bound_waiting_s, None, None, compared.bound_jct_s)
    rows.append(("lower bound", *bounds, *[None] * 8))  # type: ignore[arg-type]
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{'' if cell is None else _escaped(str(cell))}</td>" for cell in row)
        + "</tr>\n"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _summary(compared: comparison.Comparison) -> str:
    days = compared.until_s / 1.1 / 86_400
    text = f"{compared.jobs:,} jobs in {days:.1f} days on {compared.gpus:,} GPUs, seed {compared.seed}. Simulated."
    ranked = sorted(
        (each for each in compared.policies if each.figures.waiting_mean_s is not None),
        key=lambda each: each.figures.waiting_mean_s or 0.0,
    )
    if len(ranked) > 1:
        best = ranked[0]
        waiting = chart_scales.duration(best.figures.waiting_mean_s or 0.0)
        text += f" <strong>{_escaped(best.policy)}</strong> waits least: {waiting} on average."
    return text


def _legend(compared: comparison.Comparison) -> str:
    entries = "".join(
        f'<label><input type="checkbox" checked="" id="{_kind(number)}"/><i class="{_kind(number)}"></i>'
        f"{_escaped(each.policy)}</label>"
        for number, each in enumerate(compared.policies)
    )
    return f'<div class="legend">{entries}</div>'


def _colours(compared: comparison.Comparison) -> str:
    rules = []
    spare = iter(_COLOURS * (1 + len(compared.policies) // len(_COLOURS)))
    for number, each in enumerate(compared.policies):
        light, dark = _ENGINE_COLOUR if each.policy == ENGINE else next(spare)
        colour, kind = f"light-dark({light}, {dark})", _kind(number)
        rules.append(f".line.{kind} {{ stroke: {colour}; }} .dot.{kind}, .{kind} .bar {{ fill: {colour}; }} "
                     f"i.{kind} {{ background: {colour}; }} "
                     f"body:has(#{kind}:not(:checked)) svg .{kind} {{ display: none; }}")  # fmt: skip
        if each.policy == ENGINE:
            rules.append(f".line.{kind} {{ stroke-width: 3.5; }}")
    return "\n".join(rules) + "\n"


def _longest(compared: comparison.Comparison) -> float:
    waits = [wait for each in compared.policies for wait in each.waiting_quantiles_s[-1:]]
    return chart_scales.highest(waits)


def _kind(number: int) -> str:
    return f"c{number}"


def _escaped(text: str) -> str:
    return html.escape(text)
