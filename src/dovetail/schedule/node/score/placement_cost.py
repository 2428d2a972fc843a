"""What capacity a placement makes unusable, or takes from work that can run nowhere else: five terms in milli-GPU.

Given the mix of pods to expect, and the states of nodes before and after. Three terms depend on the node alone: idle
GPU that becomes unusable, a good combination of shares that is spoilt, a slight best fit by CPU. Two have prices that
change with every placement: GPU models that some pods insist on, and places for pods with several GPUs. A term that
has no meaning for a pod or a node is 0. Never refuses a node and never reserves one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from dovetail import cache
from dovetail.model import plan, pod_mix, policy
from dovetail.schedule.node.score import effective_sizes, unusable_gpu
from dovetail.schedule.node.score.gpu_states import GpuState, Taken

EXPONENT: Final = 2  # little scarcity costs very little
CORES_128: Final = 128_000  # thousandths of a cpu
DECIMALS: Final = 6  # equal costs may differ by rounding errors


class Loss(NamedTuple):
    """What a placement loses on a node, before the prices that change with every placement."""

    unusable: float = 0.0
    pattern: float = 0.0
    cpu_fit: float = 0.0
    milli_gpu: int = 0  # taken from GPUs of the model
    model: str = ""
    lost_places: tuple[tuple[int, int], ...] = ()  # number of the shape, GPUs of its lost places
    is_share: bool = False  # of one device

    @property
    def fixed(self) -> float:
        """The terms that stay as they are while the node does."""
        return self.cpu_fit + self.of_devices

    @property
    def of_devices(self) -> float:
        """The terms that the choice of devices decides."""
        return round(self.unusable + self.pattern, DECIMALS) if self.is_share else self.unusable


class Prices(NamedTuple):
    """How scarce things are now: 0 is plenty, 1 all of it is needed."""

    models: dict[str, float]
    places: tuple[float, ...]  # by number of the shape


class MixTables:
    """What follows from a mix and the weights alone."""

    def __init__(self, mix: pod_mix.Mix, weights: policy.Weights) -> None:
        """Solves the program for the shares of the mix."""
        self.weights = weights
        self.unusable = unusable_gpu.UnusableGpu(
            pod_mix.typical(mix), repeated_percent=weights.repeated_fill_percent
        )
        self.patterns = effective_sizes.EffectiveSizes(_sharing_sizes(mix))
        # The whole mix here, not its typical part: rare models are the ones to protect.
        self.total_gpu_milli = max(1, mix.total_gpu_milli)
        self.bound_demand = _demand_by_models(mix)
        self.large_shapes = tuple((shape, count) for shape, count in mix.counts if shape.gpus >= 2)

    def places(self, state: GpuState) -> tuple[int, ...]:
        """Places for each shape with several GPUs on a node."""
        return tuple([_places(shape, state) for shape, _ in self.large_shapes])

    def loss(self, before: GpuState, after: GpuState, taken: tuple[Taken, ...]) -> Loss:
        """What a pod costs that turns the one state into the other; `taken` are the devices of its claims."""
        weights = self.weights
        more_unusable = (self.unusable.of(after) - self.unusable.of(before)) / self.unusable.pods
        lost_places = []
        if self.large_shapes:
            pairs = zip(self.places(before), self.places(after), strict=True)
            lost_places = [
                (number, (places - left) * self.large_shapes[number][0].gpus)
                for number, (places, left) in enumerate(pairs)
                if places != left
            ]
        return Loss(
            unusable=more_unusable * (weights.unusable / 1000),
            pattern=self._pattern(taken) if is_share(taken) else 0.0,
            cpu_fit=weights.cpu_fit_per_128_cores / CORES_128 * after.milli_cpu,
            milli_gpu=before.idle - after.idle,
            model=before.model,
            lost_places=tuple(lost_places),
            is_share=is_share(taken),
        )

    def _pattern(self, taken: tuple[Taken, ...]) -> float:
        size = taken[0].free_before - taken[0].free_after
        steps = taken[0].free_before // effective_sizes.STEP_MILLI
        return self.weights.lost_pattern * self.patterns.loss(size)[steps]


def is_share(taken: tuple[Taken, ...]) -> bool:
    """Whether a part of one device is taken; whole GPUs spoil no combination."""
    return len(taken) == 1 and taken[0].free_before - taken[0].free_after < pod_mix.MILLI


@cache.remembered(8)
def tables_for(mix: pod_mix.Mix, weights: policy.Weights) -> MixTables:
    """Tables are computed once for a mix, whichever World it was counted in."""
    return MixTables(mix, weights)


class Totals:
    """Idle GPU by model and places of each shape, over all nodes; and what is scarce by them."""

    def __init__(self, tables: MixTables) -> None:
        self._tables = tables
        self._idle: Counter[str] = Counter()
        self._places = [0] * len(tables.large_shapes)
        self._prices: Prices | None = None

    @property
    def has_prices(self) -> bool:
        """Whether anything can be scarce; where nothing is, costs of a node change with the node alone."""
        return bool(self._tables.bound_demand or self._tables.large_shapes)

    def count(self, state: GpuState, sign: int) -> None:
        """Adds or removes a node."""
        self._prices = None
        self._idle[state.model] += sign * state.idle
        for number, places in enumerate(self._tables.places(state)):
            self._places[number] += sign * places

    def prices(self) -> Prices:
        """Prices now."""
        if self._prices is None:
            idle = sum(self._idle.values())
            self._prices = Prices(self._of_models(idle), self._of_places(idle))
        return self._prices

    def _of_models(self, idle: int) -> dict[str, float]:
        """The share of each model's idle GPUs that pods bound to some models are expected to need."""
        needed: dict[str, float] = {}
        for models, demand in self._tables.bound_demand.items():
            accepted = max(sum(self._idle[model] for model in models), 1)
            share = demand / self._tables.total_gpu_milli
            for model in models:
                needed[model] = needed.get(model, 0.0) + share * idle / accepted
        return {model: min(1.0, part) ** EXPONENT for model, part in needed.items()}

    def _of_places(self, idle: int) -> tuple[float, ...]:
        """Further pods of each shape to expect until the cluster is full, divided by the places left."""
        prices = []
        for places, (_, count) in zip(self._places, self._tables.large_shapes, strict=True):
            expected = idle * (count / self._tables.total_gpu_milli)
            prices.append(min(1.0, expected / max(places, 1e-9)) ** EXPONENT)
        return tuple(prices)


def scarcity(loss: Loss, prices: Prices, weights: policy.Weights) -> tuple[float, float]:
    """What a loss costs by the prices of models and of places."""
    of_model = loss.milli_gpu * prices.models.get(loss.model, 0.0)
    of_places = 0.0
    for number, gpus in loss.lost_places:
        of_places += gpus * prices.places[number]
    return of_model * (weights.scarce_model / 1000), weights.scarce_place * of_places


def priced(fixed: float, loss: Loss, prices: Prices, weights: policy.Weights) -> float:
    """The whole cost: what does not change with prices, and what does."""
    of_model, of_places = scarcity(loss, prices, weights)
    return round(fixed + of_model + of_places, DECIMALS)


def terms(loss: Loss, prices: Prices, weights: policy.Weights) -> tuple[plan.Term, ...]:
    """The five terms by name, as far as they cost something."""
    of_model, of_places = scarcity(loss, prices, weights)
    model = loss.model or "GPUs without a product name"
    price = prices.models.get(loss.model, 0.0)
    lost_gpus = sum(gpus for _, gpus in loss.lost_places)
    sentences = (
        ("unusable GPU", loss.unusable, "idle GPU that the work to expect can no longer use"),
        ("lost pattern", loss.pattern, "a good combination of shares on the GPU is spoilt"),
        ("scarce model", of_model, f"{model} is priced {price:.2f}: other pods insist on it"),
        ("scarce places", of_places, f"places of {lost_gpus} GPUs for larger pods are lost"),
        ("cpu fit", loss.cpu_fit, "a node with less cpu left would cost less"),
    )
    all_terms = [plan.Term(name, round(cost, 3), sentence) for name, cost, sentence in sentences]
    return tuple(term for term in all_terms if term.milli_gpu)


def _places(shape: pod_mix.Shape, state: GpuState) -> int:
    if not shape.accepts(state.model):
        return 0
    by_cpu = max(state.milli_cpu, 0) // max(1, shape.cpu_milli)
    by_memory = max(state.memory_mib, 0) // max(1, shape.memory_mib)
    return min(state.full // shape.gpus, by_cpu, by_memory)


def _sharing_sizes(mix: pod_mix.Mix) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for shape, count in mix.counts:
        if shape.is_sharing:
            sizes[shape.gpu_milli] += count
    return sizes


def _demand_by_models(mix: pod_mix.Mix) -> dict[tuple[str, ...], int]:
    demand: Counter[tuple[str, ...]] = Counter()
    for shape, count in mix.counts:
        if shape.gpus and shape.models:
            models = tuple(dict.fromkeys(shape.models))  # traces name some of them twice
            demand[models] += shape.total_gpu_milli * count
    return dict(demand)
