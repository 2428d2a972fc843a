"""`dovetail cost`: what GPUs cost in a window, who held them, what of it was idle, and how budgets stand."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Sequence

import click
import msgspec

from dovetail import errors, timestamps
from dovetail.answer.cost import budget_forecast, cost_window, price_list
from dovetail.ask import cost_asked
from dovetail.cli import output
from dovetail.tables.answers import cost_text

FORMS = ("table", "wide", "json", "yaml", "csv")
REFUSED = 1


@click.command(name="cost")
@click.option(
    "--history",
    metavar="FILE|URL",
    required=True,
    help="History of GPUs: a store's file or postgresql:// URL, or a JSON document.",
)
@click.option(
    "--prices",
    metavar="FILE",
    help="What GPUs cost; `examples` for placeholders to try it with. "
    "[default: the prices that history recorded, else GPU-hours only]",
)
@click.option(
    "--window",
    metavar="WINDOW",
    default="7d",
    show_default=True,
    help="today, yesterday, week, lastweek, month, lastmonth, 12h, 7d, '7d offset 1d', or start,end.",
)
@click.option(
    "--aggregate",
    metavar="KEYS",
    default=cost_asked.DEFAULT_AGGREGATE,
    show_default=True,
    help="namespace, queue, controller, pod, claim, label:NAME, product, node, pool, gpu ...; with commas.",
)
@click.option("--step", metavar="TIME", default="", help="Rows for each step, such as 1d or 1h.")
@click.option("--budgets", is_flag=True, help="Show the budgets of the price file instead.")
@click.option(
    "--check",
    is_flag=True,
    help="As --budgets; exit code 1 if one is exceeded, or forecast to be.",
)
@click.option("--at", metavar="TIME", help="As if it were then. [default: now]")
@click.option(
    "--cluster-name",
    metavar="NAME",
    default=cost_asked.DEFAULT_CLUSTER,
    help="What the key `cluster` shows.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
def command(
    *,
    history: str,
    prices: str | None,
    window: str,
    aggregate: str,
    step: str,
    budgets: bool,
    check: bool,
    at: str | None,
    cluster_name: str,
    form: str,
) -> None:
    """Say what GPUs cost: used, allocated but idle, unallocated, unusable; and the GPU-hours that work waited for.

    \b
    dovetail cost --history week.json --prices prices.yaml                 by namespace, the last 7 days
    dovetail cost --history week.json --prices prices.yaml --aggregate queue,product --step 1d
    dovetail cost --history week.json --prices prices.yaml --check         exit code 1: a budget is exceeded
    """
    now = _now(at)
    with _bad_input():
        known = cost_asked.prices(prices)
        if budgets or check:
            _show_budgets(history, known, now, form=form, is_check=check)
            return
        words = cost_asked.CostAsked(
            window=window, aggregate=aggregate, step=step, cluster=cluster_name
        )
        question = cost_asked.question(words, known, now)
        table = cost_asked.cost(history, question, now)
    if form == "csv":
        output.write_text(cost_text.csv_text(table))
    elif form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(table)), form)
    else:
        output.write_table(cost_text.rows(table, is_wide=form == "wide"))
    for note in cost_text.notes(table):
        output.say(note)
    if not table.currency:
        output.next_step(f"cost --history {history} --prices {cost_asked.EXAMPLES}")


def _show_budgets(
    history: str, known: price_list.PriceList, now: int, *, form: str, is_check: bool
) -> None:
    if form == "csv":
        raise click.UsageError("budgets are shown as table, wide, json or yaml")
    states = cost_asked.budgets(history, known, now)
    if not states:
        where = known.source or "without --prices"
        raise errors.InputError(
            f'{where}: there are no budgets; add "budgets: [{{queue: NAME, perMonth: 1000}}]" to the price file'
        )
    if form in ("json", "yaml"):
        trees = msgspec.json.decode(msgspec.json.encode(states))
        if form == "json":
            output.write_json(trees)
        else:
            output.write_documents(trees, form)
    else:
        output.write_table(cost_text.budget_rows(states))
    output.say(f"forecast: {budget_forecast.METHOD}")
    for reason in _reasons(states):
        output.say(f"* {reason}")
    if is_check and any(state.is_over for state in states):
        click.get_current_context().exit(REFUSED)


def _reasons(states: Sequence[budget_forecast.BudgetState]) -> list[str]:
    return sorted({reason for state in states for reason in state.partial})


def _now(at: str | None) -> int:
    if at is None:
        return cost_window.millis_of(datetime.datetime.now(datetime.UTC))
    moment = timestamps.parse_or_none(at)
    if moment is None:
        raise click.UsageError(f'--at "{at}": expected a time such as 2026-11-18T10:00:00Z')
    return cost_window.millis_of(moment)


@contextlib.contextmanager
def _bad_input() -> Iterator[None]:
    try:
        yield
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
