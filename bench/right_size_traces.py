"""The GPU memory of workloads over time, for `python -m bench right-size`: measured, derived from demand, or drawn.

Given the folder of recorded traces. Three origins, never mixed: `measured` memory; memory `derived` from recorded
requests by a law that is stated at its loader; and a `synthetic` stand-in, the same for the same seed, for the measured
trace where that is not in the folder. Never chooses a rule.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import hashlib
import io
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

GIB: Final = 1024**3
KIB: Final = 1024
MINUTE: Final = 60
FEWEST_SAMPLES: Final = 20  # in each half, else a series says nothing about a later period


class Series(NamedTuple):
    """The memory of one workload: seconds from its beginning, and bytes, in order of time."""

    name: str
    times: tuple[int, ...]
    memory: tuple[int, ...]


class Trace(NamedTuple):
    """A set of workloads, and how their memory is known."""

    name: str
    origin: str  # measured, derived or synthetic
    law: str  # how memory follows from what was recorded
    series: tuple[Series, ...]


MEASURED_FILE: Final = "pod_gpu_memory_used_bytes_anon.csv"
# Files of the folder that hold no demand or memory in time, and so cannot be used here.
UNSUITABLE: Final = {
    "openb_*, alibaba_dlrm_v2025, alibaba_spot_nodes_v2026": "requests only: no usage in time",
    "philly_*, helios_*, acme_*": "durations and counts of GPUs: no memory",
    "gavel_throughputs, pwr_power_model, mig_profiles_*": "properties of models and boards",
}


def recorded(folder: Path) -> tuple[list[Trace], list[str]]:
    """Every suitable trace of the folder, and a line about each that is not there."""
    loaders: dict[str, Callable[[Path], Trace]] = {
        f"{MEASURED_FILE}.gz": measured_pods,
        MEASURED_FILE: measured_pods,
        "alibaba_genai_requests_v2026.csv.gz": image_models,
        "mooncake_requests.csv.gz": mooncake,
        "azure_llm_2023.csv.gz": azure,
        "servegen_rate_10min.csv.gz": servegen,
    }
    traces = [load(folder / name) for name, load in loaders.items() if (folder / name).exists()]
    absent = [
        f"{folder / name} is not there"
        for name in loaders
        if not (folder / name).exists() and not name.startswith(MEASURED_FILE)
    ]
    if not any(trace.origin == "measured" for trace in traces):
        absent.insert(
            0,
            f"{folder / MEASURED_FILE}[.gz] is not there: the memory that Alibaba measured "
            "(cluster-trace-v2026-GenAI); a synthetic stand-in takes its place",
        )
    return traces, absent


def measured_pods(path: Path) -> Trace:
    """What Alibaba measured of serving pods: one sample a minute, 144 pods, about a day."""
    samples: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in _rows(path):
        when = int(float(row["timestamp_anon"]))
        samples[row["container_ip"]].append((when, int(float(row["value"]))))
    series = [_series(name, sorted(own)) for name, own in sorted(samples.items())]
    return _trace("alibaba genai pods", "measured", "as measured", series)


# Memory derived from recorded requests


def image_models(path: Path) -> Trace:
    """Image generation: a pod a model. Images of a batch and LoRA adapters add to the weights, while a request runs."""
    events: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in _rows(path):
        start = int(datetime.datetime.fromisoformat(row["gmt_create"] + "+00:00").timestamp())
        model = row["checkpoint_model_version_id"]
        weights = _pick(model, (4, 7, 12, 24)) * GIB  # SD 1.5, SDXL, SD 3, Flux: which is not said
        per_image = weights // 5
        images = int(float(row["num_images_per_prompt"] or 1))
        if row["predict_type"] != "TXT_2_IMG":
            images += 1  # the given image is encoded, too
        memory = weights + images * per_image + int(row["num_lora"]) * GIB // 4
        seconds = int(float(row["exec_time_seconds"] or 1))
        events[model].append((start, start + max(seconds, 1), memory))
    series = [
        _series(model, [(start, memory) for start, _, memory in sorted(own)])
        for model, own in sorted(events.items())
    ]
    law = "weights (4, 7, 12 or 24 GiB by model) + weights/5 an image + 256 MiB a LoRA adapter"
    return _trace("alibaba genai requests", "derived", law, series)


def mooncake(path: Path) -> Trace:
    """LLM serving: tokens in flight hold KV cache; requests go round 16 replicas."""
    requests: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for row in _rows(path):
        when = int(row["timestamp_ms"]) / 1000
        request = (when, int(row["input_length"]), int(row["output_length"]))
        requests[row["trace"]].append(request)
    series = [each for name, own in sorted(requests.items()) for each in _replicas(name, own, 16)]
    return _trace("mooncake requests", "derived", _KV_LAW, series)


def azure(path: Path) -> Trace:
    """The same of an hour of Azure's LLM service: 8 replicas each of code and conversation."""
    requests: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for row in _rows(path):
        request = (float(row["t_s"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        requests[row["service"]].append(request)
    series = [each for name, own in sorted(requests.items()) for each in _replicas(name, own, 8)]
    return _trace("azure llm requests", "derived", _KV_LAW, series)


def servegen(path: Path) -> Trace:
    """LLM serving by rates of ten minutes: requests in flight by Little's law; each day of a model is one series."""
    rates: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in _rows(path):
        if float(row["rps"]) > 0:  # a window without any is a gap of the record
            rates[row["model"]].append((int(row["window_start_s"]), float(row["rps"])))
    series = []
    for model, own in sorted(rates.items()):
        most = max(rate for _, rate in own)
        replicas = max(1.0, most / 2)  # two requests a second each at the busiest
        for day in range(0, own[-1][0] + 1, 2 * 86_400):
            part = [
                (when, 16 * GIB + int(rate / replicas * 12 * 2000 * 128 * KIB))
                for when, rate in own
                if day <= when < day + 2 * 86_400
            ]
            series.append(_series(f"{model}-{day // 86_400}", part))
    law = "16 GiB + requests in flight (rate x 12 s) x 2000 tokens x 128 KiB; means of ten minutes"
    return _trace("servegen rates", "derived", law, series)


_KV_LAW: Final = "16 GiB + tokens in flight x 128 KiB (8B model); 8000 tokens/s in, 40 tokens/s out"


def _replicas(name: str, requests: list[tuple[float, int, int]], count: int) -> Iterator[Series]:
    """Memory every ten seconds: the most that was held in them."""
    held: list[list[tuple[float, int]]] = [[] for _ in range(count)]
    for index, (when, tokens_in, tokens_out) in enumerate(sorted(requests)):
        seconds = tokens_in / 8000 + tokens_out / 40
        held[index % count] += [
            (when, tokens_in + tokens_out),
            (when + seconds, -tokens_in - tokens_out),
        ]
    last = max(when for when, _, _ in requests)
    for index, changes in enumerate(held):
        most: dict[int, int] = {}
        tokens = 0
        for when, change in sorted(changes):
            if when > last:
                break
            tokens += change
            bucket = int(when) // 10 * 10
            most[bucket] = max(most.get(bucket, 0), tokens)
        points = [(when, 16 * GIB + 128 * KIB * most[when]) for when in sorted(most)]
        yield _series(f"{name}-{index}", points)


# The stand-in


class Drawn(NamedTuple):
    """The parameters of the stand-in; the defaults come near the five rates known of the measured trace."""

    pods: int = 432  # three times as many as were measured, for steadier rates
    minutes: int = 1368
    kinds: int = 8  # of requests and models of one pod, each with a memory of its own
    step_mean: float = -2.1  # of the logarithm of how much larger each kind is than the one before
    step_spread: float = 1.1
    rarity: float = 12.0  # how much rarer each kind is than the one before
    rarity_spread: float = 1.0  # between pods
    steady: float = 0.4  # the share of pods that serve one kind only
    busier: float = 3.0  # how many times as often larger kinds come in the second half of the day


DRAWN: Final = Drawn()


def drawn(seed: int, form: Drawn = DRAWN) -> Trace:
    """Pods like those that Alibaba measured: each serves a few kinds of requests, the larger ones more rarely."""
    series = []
    for pod in range(form.pods):
        chance = random.Random(f"{seed}/{pod}")
        levels = [min(50.0, chance.lognormvariate(2.9, 0.5)) * GIB]
        odds = [1.0]
        rarity = 1 + form.rarity * chance.lognormvariate(0, form.rarity_spread)
        kinds = 1 if chance.random() < form.steady else form.kinds
        for _ in range(kinds - 1):
            larger = 1 + chance.lognormvariate(form.step_mean, form.step_spread)
            levels.append(min(79.0 * GIB, levels[-1] * larger))
            odds.append(odds[-1] / rarity)
        later = [odds[0], *(share * form.busier for share in odds[1:])]
        half = form.minutes // 2
        memory = chance.choices(levels, odds, k=half)
        memory += chance.choices(levels, later, k=form.minutes - half)
        points = [(minute * MINUTE, int(level)) for minute, level in enumerate(memory)]
        series.append(_series(f"pod-{pod}", points))
    law = f"seed {seed}: {form.kinds} kinds of requests a pod, the larger the rarer"
    return _trace("stand-in for genai pods", "synthetic", law, series)


def _trace(name: str, origin: str, law: str, series: list[Series]) -> Trace:
    return Trace(name, origin, law, tuple(each for each in series if _is_long_enough(each)))


def _is_long_enough(series: Series) -> bool:
    if len(series.times) < 2 * FEWEST_SAMPLES:
        return False
    middle = (series.times[0] + series.times[-1]) / 2
    first = sum(when < middle for when in series.times)
    return min(first, len(series.times) - first) >= FEWEST_SAMPLES


def _series(name: str, points: list[tuple[int, int]]) -> Series:
    return Series(name, tuple(when for when, _ in points), tuple(memory for _, memory in points))


def _pick(name: str, values: tuple[int, ...]) -> int:
    return values[hashlib.sha256(name.encode()).digest()[0] % len(values)]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    yield from csv.DictReader(io.StringIO(text.decode()))
