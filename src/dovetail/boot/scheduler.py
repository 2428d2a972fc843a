"""Wires the live scheduler: API server, election, picture, loop, metrics, health. One process, two event loops.

Events, decisions and writes share the main loop. The lease is renewed and health is answered on another, in a thread of
its own: a long decision costs neither. That thread also watches the main loop and says so when it is held for long.
A replica that does not lead only watches the Lease. A new leader lists everything anew before its first write, so it
starts from all its predecessor wrote. In shadow mode nothing is written at all, not even the Lease.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import logging
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

import dovetail
from dovetail.boot import background, clocks, logs, serving, snapshot_live
from dovetail.boot import configuration as configuration_files
from dovetail.kube import api as kube_api
from dovetail.kube import arriving, config, discovery, reviews, transport, watch
from dovetail.loops import (
    consistency,
    election,
    grouping,
    idle,
    lasting,
    picture,
    progress,
    queues,
    relapses,
    schedule,
    shadow,
    tenures,
    usage,
)
from dovetail.model import configuration as configurations
from dovetail.model import kinds, plaintext, policy
from dovetail.ports import failures, tracing
from dovetail.ports import metrics as gauges
from dovetail.telemetry import metrics, traces
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.scheduler")
LAG_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 1.0
ALIVE_SECONDS: Final = 30.0  # a main loop that is held for longer hangs: health says no, the lease is not renewed
HELD_SECONDS: Final = 2.0  # a main loop that is held for longer is worth a line in the log, and is not ready
WATCH_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 3.0  # well within the 30 s Kubernetes gives a pod to stop
OWNER_SECONDS: Final = 5.0  # watches of two kinds lag behind each other by milliseconds; by more where much happens
OLD_RULE_VERSIONS: Final = ("resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3")

Report = Callable[[shadow.Comparison], None]


class Process:
    """The scheduler as one process."""

    def __init__(self, connection: config.Connection, configuration: configurations.SchedulerConfiguration) -> None:
        self.configuration = configuration
        self.clock = clocks.SystemClock()
        self.metrics = metrics.Metrics()
        self.tracer = tracer_of(configuration.tracing)
        self.transport = transport.Transport(
            connection, concurrency=configuration.client_connection.concurrency, user_agent="dovetail-scheduler"
        )
        # Renewals have connections of their own: however many writes wait, the lease does not.
        self._for_lease = transport.Transport(connection, concurrency=2, user_agent="dovetail-scheduler")
        self.election: election.Election | None = None
        self.picture: picture.Picture | None = None
        self.scheduler: schedule.Scheduler | None = None
        self.measured: gauges.Metrics = gauges.NoMetrics()  # who knows how busy devices are
        self.settings = settings_of(configuration)  # what the loop is told
        self.watched: tuple[kinds.Kind, ...] = kinds.WATCHED
        self.progress = progress.Progress()  # over all tenures
        self._turned = self.clock.monotonic()  # when the main loop last came round
        self._main_thread = threading.get_ident()
        self._tenures = tenures.Tenures(self.clock, self.metrics)
        self._relapses = relapses.Relapses()
        self._suspects: set[str] = set()  # objects that a World tripped over

    async def run(self, *, report: Report | None = None) -> None:
        """Schedules until stopped by a signal. With a report it only compares (shadow mode)."""
        self._main_thread = threading.get_ident()
        lag = asyncio.create_task(self._measure_lag())
        try:
            async with self.transport, background.BackgroundLoop("lease-and-health") as beside, self._beside(beside):
                self.watched = await self._first_answer(served_kinds)
                work = asyncio.create_task(self._work(report, beside))
                _stop_on_signals(work)
                try:
                    await work
                except asyncio.CancelledError:
                    LOG.info("stopped")
        finally:
            lag.cancel()
            if isinstance(self.tracer, traces.Traces):
                await asyncio.to_thread(self.tracer.close)

    @contextlib.asynccontextmanager
    async def _beside(self, loop: background.BackgroundLoop) -> AsyncIterator[None]:
        """What runs on the background loop for as long as the process lives."""
        main = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as open_:
            for context in (self._for_lease, self._server(main)):
                await loop.run(context.__aenter__())
                open_.push_async_callback(_closed_on, loop, context)
            watching = asyncio.create_task(loop.run(self._watch_main_loop()))
            open_.push_async_callback(_ended, watching)
            yield

    async def _first_answer(
        self, ask: Callable[[transport.Transport], Awaitable[tuple[kinds.Kind, ...]]]
    ) -> tuple[kinds.Kind, ...]:
        """Waits for an API server that is not there yet, saying so."""
        while True:
            try:
                return await ask(self.transport)
            except (failures.Unavailable, failures.Throttled) as failure:
                LOG.warning("waiting for the API server", extra={"why": str(failure)})
                await self.clock.sleep(PATIENCE_SECONDS)

    async def _work(self, report: Report | None, beside: background.BackgroundLoop) -> None:
        if report is not None:
            await self._tenures.run(lambda: self._shadow(report))
        elif not self.configuration.leader_election.enabled:
            await self._lead(None)
        else:
            chosen = self.configuration.leader_election
            timing = election.Timing(
                lease_seconds=chosen.lease_duration_seconds,
                renew_seconds=chosen.renew_deadline_seconds,
                retry_seconds=chosen.retry_period_seconds,
            )
            self.election = election.Election(
                kube_api.KubeApi(self._for_lease),
                self.clock,
                namespace=chosen.namespace,
                name=chosen.name,
                timing=timing,
                meter_=self.metrics,
                is_well=self._alive,
            )
            main = asyncio.get_running_loop()
            await beside.run(self.election.run(lambda fence: background.run_on(main, self._lead(fence))))

    async def _lead(self, fence: election.Fence | None) -> None:
        """Until the loss of the lease; a fault of ours costs a pause and a fresh list, not the process."""
        await self._tenures.run(lambda: self._tenure(fence))

    async def _tenure(self, fence: election.Fence | None) -> None:
        """One tenure. What it kept in memory is given back at its end, whichever way it ends."""
        self.metrics.count("dovetail_tenures_total")
        try:
            await self._schedule(fence)
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they hold the picture, and the error may be kept for long
            raise
        finally:
            gc.unfreeze()  # what is frozen is never collected, and a picture is full of cycles
            gc.collect()

    async def _schedule(self, fence: election.Fence | None) -> None:
        """From a fresh list to the loss of the lease."""
        began = self.clock.monotonic()
        api = kube_api.KubeApi(
            self.transport, fence=fence, timeout=self.configuration.client_connection.request_timeout_seconds
        )
        async with self._watching() as seen:
            await seen.synced.wait()
            gc.collect()
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)
            LOG.info(
                "synced",
                extra={
                    "seconds": self.clock.monotonic() - began,
                    "nodes": len(seen.world.nodes),
                    "pods": len(seen.world.pods),
                },
            )
            told = queues.Statuses(seen, api, clock=self.clock, meter_=self.metrics)
            settings = self.settings
            used = usage.Usage(
                seen.world.queues,
                told.publish,
                clock=self.clock,
                half_life_seconds=settings.policy.batch.usage_half_life_seconds,
            )
            keeps_use = settings.policy.batch.usage_weight > 0
            self.scheduler = schedule.Scheduler(
                seen,
                api,
                clock=self.clock,
                meter_=self.metrics,
                settings=settings,
                tracer=self.tracer,
                begun=self._begun,
                progress_=self.progress,
                limits=self._budgets,
                relapses_=self._relapses,
                numbers=used.publish if keeps_use else told.publish,
            )
            idlers = idle.Idle(
                seen.world,
                self.measured,
                clock=self.clock,
                tell=self.scheduler.teller.about_pod,
                changed=self.scheduler.ask_again,
            )
            beside = {"queue status": told.run, "idleness": idlers.run}
            if keeps_use:
                beside["usage"] = used.run
            async with self._going_on(beside):
                try:
                    await self.scheduler.run()
                finally:
                    self.scheduler = None

    @contextlib.asynccontextmanager
    async def _going_on(self, beside: Mapping[str, Callable[[], Awaitable[None]]]) -> AsyncIterator[None]:
        """Work by name that goes on meanwhile, and begins again after a mistake."""
        tasks = [
            asyncio.create_task(lasting.lasting(name, work, self.clock, self.metrics)) for name, work in beside.items()
        ]
        for task in tasks:
            task.add_done_callback(self._tenures.task_ended)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _begun(self) -> list[Any]:
        """What a predecessor began or promised and did not end. What cannot be read is said, and left alone."""
        found, _ = await kube_api.list_all(self.transport, kinds.INTENT, unreadable=_not_read)
        return found

    async def _budgets(self, namespace: str) -> list[Any]:
        """The disruption budgets of a namespace, as they are now."""
        found, _ = await kube_api.list_all(self.transport, kinds.BUDGET, namespace=namespace)
        return found

    async def _shadow(self, report: Report) -> None:
        async with self._watching() as seen:
            compared = shadow.Shadow(
                seen,
                clock=self.clock,
                meter_=self.metrics,
                settings=self.settings,
                report=report,
            )
            await compared.run()

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[picture.Picture]:
        """A picture that is kept current meanwhile. Kinds of our own join it when somebody installs them."""
        ours = await self._first_answer(lambda over: arriving.served(over, kinds.OURS))
        listed = (*self.watched, *ours, kinds.GANG)
        seen = picture.Picture(World(), self.clock, listed, suspects=self._suspects)
        tasks = [asyncio.create_task(seen.pump()), asyncio.create_task(self._grouping(seen).run())]
        for kind in self.watched:
            feed = picture.Feed(seen, kind, trouble=self._trouble)
            tasks.append(
                asyncio.create_task(watch.follow(self.transport, kind, feed, clock=self.clock, meter=self.metrics))
            )
        for kind in kinds.OURS:
            feed = picture.Feed(seen, kind, trouble=self._trouble)
            arrived = functools.partial(seen.admit, kind)
            following = arriving.follow(
                self.transport, kind, feed, clock=self.clock, arrived=arrived, meter=self.metrics
            )
            tasks.append(asyncio.create_task(following))
        for task in tasks:
            task.add_done_callback(self._tenures.task_ended)  # a picture that stands still is not decided on
        self.picture = seen
        try:
            yield seen
        finally:
            self.picture = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _grouping(self, seen: picture.Picture) -> grouping.Grouping:
        """What reads gangs off the objects that own pods."""
        return grouping.Grouping(
            seen,
            self.clock,
            served=lambda: discovery.present(self.transport, (*kinds.OWNERS, *kinds.PARENTS), kinds.OLDER),
            follow=lambda kind, feed: watch.follow(self.transport, kind, feed, clock=self.clock, meter=self.metrics),
            trouble=self._trouble,
        )

    def _trouble(self, kind: str, reason: str) -> None:
        self.metrics.count("dovetail_watch_restarts_total", kind=kind, reason=reason.partition(":")[0][:40])
        LOG.info("watch", extra={"kind": kind, "why": reason})

    # What is served

    def _server(self, main: asyncio.AbstractEventLoop) -> serving.Server:
        """Health and metrics, on the background loop; what reads the picture is asked on the main loop."""
        chosen = self.configuration.serving
        return serving.Server(
            metrics=self.metrics.text,
            ready=self._ready,
            alive=self._alive,
            configuration=self.configuration,
            role=self._role,
            answers={"/debug/consistent": lambda: background.run_on(main, self._consistent())},
            snapshot=(lambda: background.run_on(main, self._snapshot()))
            if self.configuration.snapshot_directory
            else None,
            authorise=reviews.Reviews(kube_api.KubeApi(self._for_lease), self.clock).authorise,
            address=chosen.address,
            port=chosen.port,
        )

    # Asked on the background loop: each reads single values that the main loop sets.

    @property
    def _held_seconds(self) -> float:
        return self.clock.monotonic() - self._turned

    def _alive(self) -> bool:
        return self._held_seconds < ALIVE_SECONDS

    def _ready(self) -> dict[str, bool]:
        seen = self.picture
        is_standby = self.election is not None and not self.election.standing.is_leading
        synced = seen is not None and seen.synced.is_set()
        return {
            "picture": is_standby or synced,
            "loop": self._held_seconds < HELD_SECONDS,
            "progress": is_standby or not self.progress.is_stalled(self.clock.monotonic()),
            "tenure": is_standby or self._tenures.is_steady,
        }

    def _role(self) -> str:
        if self.election is None:
            return "alone"
        return "leader" if self.election.standing.is_leading else "standby"

    async def _snapshot(self) -> str:
        """Writes what the cluster is now into a new folder of the configured directory."""
        stamp = self.clock.now().strftime("%Y%m%dT%H%M%S.%fZ")
        place = Path(self.configuration.snapshot_directory) / f"snapshot-{stamp}"
        await snapshot_live.save(place, self.transport.connection, say=LOG.info)
        return str(place)

    async def _consistent(self) -> dict[str, Any]:
        seen = self.picture
        if seen is None:
            return {"consistent": None, "standby": True}
        verdict = await consistency.checked(seen.world, self._listed, self.clock, (*self.watched, *kinds.OURS))
        return msgspec.to_builtins(verdict)  # type: ignore[no-any-return]

    async def _listed(self, kind: kinds.Kind) -> list[Any]:
        try:
            found, _ = await kube_api.list_all(self.transport, kind)
        except failures.Missing:
            if kind not in kinds.OURS:  # those may not be installed
                raise
            return []
        return found

    async def _watch_main_loop(self) -> None:
        """Says when one piece of work holds the main loop, and where it is: the loop itself cannot."""
        is_reported = False
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            held = self._held_seconds
            self.metrics.gauge("dovetail_loop_held_seconds", held if held > WATCH_SECONDS else 0.0)
            if held > HELD_SECONDS and not is_reported:
                LOG.warning("the event loop is held", extra={"seconds": held, "at": self._main_stack()})
            is_reported = held > HELD_SECONDS

    def _main_stack(self) -> str:
        return background.stack_of(self._main_thread)

    async def _measure_lag(self) -> None:
        """How long the event loop was held by others: what a renewal or an event had to wait."""
        while True:
            asked = self.clock.monotonic()
            await asyncio.sleep(LAG_SECONDS)
            self._turned = self.clock.monotonic()
            self.metrics.observe("dovetail_loop_blocked_seconds", max(0.0, self._turned - asked - LAG_SECONDS))


def tracer_of(chosen: configurations.Tracing) -> tracing.Tracer:
    """Who is told each pod's way; nobody unless an endpoint is configured. Raises InputError without the extra."""
    if not chosen.endpoint:
        return tracing.NoTracer()
    return traces.connected(chosen.endpoint, sample_ratio=chosen.sample_ratio, version=dovetail.__version__)


def settings_of(configuration: configurations.SchedulerConfiguration) -> schedule.Settings:
    """What the loop is told."""
    return schedule.Settings(
        policy=configurations.policy_of(configuration),
        budget=msgspec.structs.replace(policy.LIVE, search_steps=configuration.decide.search_steps),
        loop_bound_seconds=configuration.decide.loop_bound_milliseconds / 1000,
        batch_pods=configuration.decide.batch_pods,
        net_seconds=configuration.decide.net_seconds,
        scales_from_zero=configuration.decide.scales_from_zero,
        in_flight_pods=configuration.writes.in_flight_pods,
        conditions_timeout_seconds=configuration.binding_conditions_timeout_seconds,
        volumes_timeout_seconds=configuration.volume_binding_timeout_seconds,
        quarantine_slack_seconds=configuration.quarantine.slack_seconds,
        quarantine_most_seconds=configuration.quarantine.max_seconds,
        is_quarantining=configuration.quarantine.enabled,
        audit_seconds=configuration.audit.interval_seconds if configuration.audit.enabled else 0.0,
        tells_scheduled=configuration.events.scheduled,
        events_per_second=configuration.events.rate_per_second,
        controller=configuration.scheduler_names[0],
        owner_seconds=OWNER_SECONDS,
        drain_seconds=DRAIN_SECONDS,
    )


async def _closed_on(loop: background.BackgroundLoop, context: AbstractAsyncContextManager[Any]) -> None:
    await loop.run(context.__aexit__(None, None, None))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def printed(stream: TextIO, totals: dict[str, int]) -> Report:
    """A report that prints one JSON line per pod and counts results."""

    def report(made: shadow.Comparison) -> None:
        totals[made.result] = totals.get(made.result, 0) + 1
        stream.write(plaintext.escaped_json(msgspec.json.encode(made).decode()) + "\n")
        stream.flush()

    return report


def _not_read(name: str, problem: str) -> None:
    LOG.error("an intent cannot be read", extra={"intent": name, "why": problem})


async def served_kinds(over: transport.Transport) -> tuple[kinds.Kind, ...]:
    """What there is to watch: rules for device taints are not served everywhere, and under other versions before."""
    rule = await discovery.newest(over, kinds.TAINT_RULE, OLD_RULE_VERSIONS)
    return tuple(one for kind in kinds.WATCHED if (one := rule if kind is kinds.TAINT_RULE else kind) is not None)


def main(arguments: Sequence[str]) -> int:
    """Runs the scheduler, or the shadow of one, as a plain process."""
    parser = argparse.ArgumentParser(prog="dovetail scheduler")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    parser.add_argument("--config")
    parser.add_argument("--shadow", action="store_true")
    given = parser.parse_args(arguments)
    configuration = configuration_files.load(given.config) if given.config else configurations.SchedulerConfiguration()
    logs.set_up(configuration.logging.format, configuration.logging.level)
    process = Process(config.load(given.kubeconfig, context=given.context), configuration)
    totals: dict[str, int] = {}
    asyncio.run(process.run(report=printed(sys.stdout, totals) if given.shadow else None))
    return 0


def _stop_on_signals(work: asyncio.Task[None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
