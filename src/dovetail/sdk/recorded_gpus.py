"""What was recorded of GPUs, for programs and notebooks: what they cost, how budgets stand, how busy they were.

Given where history is: a store, a JSON document, or a dashboard that has one. Asks no cluster, except for patches of
`right_size`. Everything is read with each question, so an answer is the newest. Never writes, never prints.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import msgspec

from dovetail import errors
from dovetail.answer.cost import budget_forecast, cost_table, cost_window, gpu_utilisation
from dovetail.answer.right_size import right_size_answer
from dovetail.ask import cost_asked, recorded_history, right_size_asked
from dovetail.model.accounting import records
from dovetail.ports import failures
from dovetail.sdk import given_prices, http_json, python_words, shown_answers, shown_history
from dovetail.sdk.result_table import Table

if TYPE_CHECKING:
    from dovetail.sdk.cluster import Cluster

Path = str | os.PathLike[str]
Words = str | Iterable[str]
T = TypeVar("T")
_NOTHING = cost_window.Window(0, 1)


class Source(Protocol):
    """Where answers come from."""

    def cost(self, asked: cost_asked.CostAsked) -> cost_table.CostTable: ...

    def utilisation(self, asked: cost_asked.CostAsked) -> gpu_utilisation.Utilisation: ...

    def budgets(self) -> tuple[budget_forecast.BudgetState, ...]: ...

    def records(self, window: str) -> records.Records: ...

    def right_size(
        self,
        window: str,
        namespace: str | None,
        cluster: Cluster | None,
        prices: Mapping[str, Fraction] | None,
    ) -> right_size_answer.Answer: ...


class History:
    """What was recorded of GPUs. Threads may share it: every question opens the store for itself."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @classmethod
    def open(cls, location: Path, *, prices: Path | None = None) -> History:
        """A store (SQLite file or PostgreSQL URL) or a JSON document, with a price file; `examples` for list prices.

        Raises InputError for what cannot be read.
        """
        with python_words.said():
            place = os.fspath(location)
            if place == "-":
                raise errors.InputError("standard input is not read here; give a path or a URL")
            return cls(_Opened(place, None if prices is None else os.fspath(prices)))

    @classmethod
    def connect(cls, url: str, *, token: str | None = None) -> History:
        """That of a dashboard, which knows its prices. It shows what the token's user may see."""
        return cls(_Dashboard(http_json.Connection(url, token)))

    def cost(
        self, *, window: str = "7d", by: Words = "namespace", step: str = ""
    ) -> shown_history.Cost:
        """What GPUs cost, by namespace, queue, product, pod, label:NAME and more; as `dovetail cost`."""
        answer = self._source.cost(_asked(window, by, step))
        return shown_answers.shown_as(shown_history.Cost, answer)

    def utilisation(
        self, *, window: str = "24h", by: Words = "product", step: str = ""
    ) -> shown_history.Utilisation:
        """How GPUs were used: allocated, busy, idle, free, and what work waited for."""
        answer = self._source.utilisation(_asked(window, by, step))
        return shown_answers.shown_as(shown_history.Utilisation, answer)

    def budgets(self) -> Table[budget_forecast.BudgetState]:
        """How the budgets of the price file stand this month; as `dovetail cost --budgets`."""
        return Table(self._source.budgets(), shown_history.budget_columns())

    def right_size(
        self,
        *,
        window: str = right_size_asked.DEFAULT_WINDOW,
        namespace: str | None = None,
        cluster: Cluster | None = None,
        prices: given_prices.Prices | None = None,
    ) -> shown_history.RightSizes:
        """Which smaller devices work could use; with a cluster that was read also how, and what the engine says."""
        priced = given_prices.read(prices)
        answer = self._source.right_size(window, namespace, cluster, priced)
        return shown_answers.shown_as(shown_history.RightSizes, answer)

    def records(self, *, window: str = "24h") -> records.Records:
        """The records that overlap a window: GPUs, allocations, measurements, waiting, gaps."""
        return self._source.records(window)


class _Opened:
    """The source of `History.open`."""

    def __init__(self, location: str, prices: str | None) -> None:
        self._location = location
        self._prices = prices
        self._known = cost_asked.prices(prices)
        recorded_history.read(location, _NOTHING)  # what cannot be opened is said now

    def cost(self, asked: cost_asked.CostAsked) -> cost_table.CostTable:
        now = _now()
        with python_words.said():
            question = cost_asked.question(asked, self._known, now)
            return cost_asked.cost(self._location, question, now)

    def utilisation(self, asked: cost_asked.CostAsked) -> gpu_utilisation.Utilisation:
        with python_words.said():
            return cost_asked.utilisation(self._location, asked, _now())

    def budgets(self) -> tuple[budget_forecast.BudgetState, ...]:
        with python_words.said():
            return cost_asked.budgets(self._location, self._known, _now())

    def records(self, window: str) -> records.Records:
        with python_words.said():
            asked = cost_window.parse(window, _now())
            return recorded_history.read(self._location, asked).records

    def right_size(
        self,
        window: str,
        namespace: str | None,
        cluster: Cluster | None,
        prices: Mapping[str, Fraction] | None,
    ) -> right_size_answer.Answer:
        with python_words.said():
            given = right_size_asked.recorded_work(
                self._location, window=window, namespace=namespace
            )
        if cluster is not None:
            return cluster.right_sizes(given, prices=prices)
        return right_size_asked.right_sizes(given, None, prices=prices)


class _Dashboard:
    """The source of `History.connect`."""

    def __init__(self, connection: http_json.Connection) -> None:
        self._connection = connection

    def cost(self, asked: cost_asked.CostAsked) -> cost_table.CostTable:
        return self._answer("/cost", cost_table.CostTable, _params(asked))

    def utilisation(self, asked: cost_asked.CostAsked) -> gpu_utilisation.Utilisation:
        return self._answer("/utilisation", gpu_utilisation.Utilisation, _params(asked))

    def budgets(self) -> tuple[budget_forecast.BudgetState, ...]:
        return self._answer("/budgets", _Budgets, {}).items

    def records(self, window: str) -> records.Records:
        raise errors.InputError("a dashboard does not offer records; open its store")

    def right_size(self, *_: Any) -> NoReturn:
        raise errors.InputError("a dashboard does not offer right_size; open its store")

    def _answer(self, path: str, kind: type[T], params: Mapping[str, str]) -> T:
        tree = self._connection.get(path, params)
        try:
            return msgspec.convert(tree, kind)
        except msgspec.ValidationError as error:
            raise failures.Unavailable(
                f"{self._connection.address} does not answer as a dashboard does: {error}"
            ) from None


class _Budgets(msgspec.Struct, frozen=True):
    items: tuple[budget_forecast.BudgetState, ...]


def _asked(window: str, by: Words, step: str) -> cost_asked.CostAsked:
    keys = by if isinstance(by, str) else ",".join(by)
    return cost_asked.CostAsked(window=window, aggregate=keys, step=step)


def _params(asked: cost_asked.CostAsked) -> dict[str, str]:
    return {"window": asked.window, "aggregate": asked.aggregate, "step": asked.step}


def _now() -> records.Millis:
    return cost_window.millis_of(datetime.datetime.now(datetime.UTC))
