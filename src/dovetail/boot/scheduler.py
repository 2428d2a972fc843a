"""Wires the live scheduler: API server, election, informer, loop, metrics, health. One process, two event loops.

Events, decisions and writes share the main loop. A second loop in its own thread renews the lease and answers health
checks, so a long decision delays neither; it also logs when the main loop is blocked for long. A replica that does not
lead only watches the Lease. A new leader lists everything before its first write, so it starts from everything its
predecessor wrote. In shadow mode nothing is written, not even the Lease.
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
from dovetail.boot import (
    agent_targets,
    background_loop,
    clocks,
    first_answer,
    http_server,
    logs,
    main_loop_watch,
)
from dovetail.files import configuration_file
from dovetail.kube import client, discovery
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind, watch
from dovetail.kubetypes import registry
from dovetail.live import supervised_tasks
from dovetail.live.cycle import progress, restarts, scheduler_loop, shadow
from dovetail.live.election import leader_election
from dovetail.live.gangs import owner_watch
from dovetail.live.informer import consistency, informer
from dovetail.live.queue import crash_backoff
from dovetail.live.report import idle_watch, queue_status_writer, queue_usage
from dovetail.model import configuration as configurations
from dovetail.model import gangs, plaintext, policy
from dovetail.ports import device_metrics, failures, tracing
from dovetail.snapshot import live_snapshot
from dovetail.telemetry import (
    agent_devices,
    metrics,
    prometheus_api,
    prometheus_devices,
    traces,
)
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.scheduler")
DRAIN_SECONDS: Final = 3.0  # well within the 30 s Kubernetes gives a pod to stop
# Watches of two kinds lag behind each other by milliseconds, and by more on a busy cluster.
OWNER_SECONDS: Final = 5.0
OLD_RULE_VERSIONS: Final = ("resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3")

Report = Callable[[shadow.Comparison], None]


class Process:
    """The scheduler as one process."""

    def __init__(
        self,
        connection: client_config.Connection,
        configuration: configurations.SchedulerConfiguration,
    ) -> None:
        self.configuration = configuration
        self.clock = clocks.SystemClock()
        self.metrics = metrics.Metrics()
        self.tracer = tracer_of(configuration.tracing)
        self.transport = transport.Transport(
            connection,
            concurrency=configuration.client_connection.concurrency,
            user_agent="dovetail-scheduler",
        )
        # Renewals have their own connections: however many writes wait, the lease does not.
        self._for_lease = transport.Transport(
            connection, concurrency=2, user_agent="dovetail-scheduler"
        )
        self.election: leader_election.Election | None = None
        self.informer: informer.Informer | None = None
        self.scheduler: scheduler_loop.Scheduler | None = None
        self._prometheus = prometheus_of(configuration.metrics.prometheus)
        self._agents = self._agents_of(configuration.metrics.node_agents)
        self.utilisation: device_metrics.Metrics = device_metrics.NoMetrics()  # device utilisation
        if self._prometheus is not None:
            self.utilisation = prometheus_devices.PrometheusDevices(
                self._prometheus, clock=self.clock, meter_=self.metrics
            )
        elif self._agents is not None:
            self.utilisation = self._agents
        self.settings = settings_of(configuration)
        self.queue_status_seconds = queue_status_writer.EVERY_SECONDS
        self.watched: tuple[registry.Kind, ...] = registry.WATCHED
        self.progress = progress.Progress()  # over all tenures
        self._main_loop = main_loop_watch.MainLoopWatch(self.clock, self.metrics)
        self._tenures = restarts.Restarts(self.clock, self.metrics)
        self._relapses = crash_backoff.CrashBackoff()
        self._suspects: set[str] = set()  # uids of objects that made a World raise

    async def run(self, *, report: Report | None = None) -> None:
        """Schedules until stopped by a signal. With a report it only compares (shadow mode)."""
        lag = asyncio.create_task(self._main_loop.measure())
        try:
            async with (
                self.transport,
                self._prometheus or contextlib.nullcontext(),
                self._agents or contextlib.nullcontext(),
                background_loop.BackgroundLoop("lease-and-health") as background,
                self._background_services(background),
            ):
                self.watched = await self._first_answer(served_kinds)
                work = asyncio.create_task(self._work(report, background))
                _stop_on_signals(work)
                try:
                    await work
                except asyncio.CancelledError:
                    LOG.info("scheduler.stopped")
        finally:
            lag.cancel()
            if isinstance(self.tracer, traces.Traces):
                await asyncio.to_thread(self.tracer.close)

    @contextlib.asynccontextmanager
    async def _background_services(
        self, loop: background_loop.BackgroundLoop
    ) -> AsyncIterator[None]:
        """Runs the lease transport, the HTTP server and the watchdog on the background loop."""
        main = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as open_:
            for context in (self._for_lease, self._server(main)):
                await loop.run(context.__aenter__())
                open_.push_async_callback(_closed_on, loop, context)
            watching = asyncio.create_task(loop.run(self._main_loop.watch()))
            open_.push_async_callback(_ended, watching)
            yield

    async def _first_answer(
        self, ask: Callable[[transport.Transport], Awaitable[tuple[registry.Kind, ...]]]
    ) -> tuple[registry.Kind, ...]:
        return await first_answer.first_answer(lambda: ask(self.transport), clock=self.clock)

    async def _work(
        self, report: Report | None, background: background_loop.BackgroundLoop
    ) -> None:
        if report is not None:
            await self._tenures.run(lambda: self._shadow(report))
        elif not self.configuration.leader_election.enabled:
            await self._lead(None)
        else:
            election = self.configuration.leader_election
            timing = leader_election.Timing(
                lease_seconds=election.lease_duration_seconds,
                renew_seconds=election.renew_deadline_seconds,
                retry_seconds=election.retry_period_seconds,
            )
            self.election = leader_election.Election(
                client.KubeApi(self._for_lease),
                self.clock,
                namespace=election.namespace,
                name=election.name,
                timing=timing,
                meter_=self.metrics,
                is_well=self._main_loop.is_alive,
            )
            main = asyncio.get_running_loop()
            await background.run(
                self.election.run(lambda fence: background_loop.run_on(main, self._lead(fence)))
            )

    async def _lead(self, fence: leader_election.Fence | None) -> None:
        """Runs until the lease is lost; a bug costs a pause and a fresh list, not the process."""
        await self._tenures.run(lambda: self._tenure(fence))

    async def _tenure(self, fence: leader_election.Fence | None) -> None:
        """One tenure. Its memory is freed at the end, with or without an error."""
        self.metrics.count("dovetail_tenures_total")
        try:
            await self._schedule(fence)
        except BaseException as error:
            # The frames reference the World, and the error may be kept for long.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            gc.unfreeze()  # frozen objects are never collected, and a World is full of cycles
            gc.collect()

    async def _schedule(self, fence: leader_election.Fence | None) -> None:
        """From a fresh list to the loss of the lease."""
        started = self.clock.monotonic()
        api = client.KubeApi(
            self.transport,
            fence=fence,
            timeout=self.configuration.client_connection.request_timeout_seconds,
        )
        async with self._watching() as informer_:
            await informer_.synced.wait()
            gc.collect()
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)
            LOG.info(
                "informer.synced",
                extra={
                    "seconds": self.clock.monotonic() - started,
                    "nodes": len(informer_.world.nodes),
                    "pods": len(informer_.world.pods),
                },
            )
            statuses = queue_status_writer.QueueStatusWriter(
                informer_,
                api,
                clock=self.clock,
                meter_=self.metrics,
                every_seconds=self.queue_status_seconds,
            )
            settings = self.settings
            usage = queue_usage.QueueUsage(
                informer_.world.queues,
                statuses.publish,
                clock=self.clock,
                half_life_seconds=settings.policy.batch.usage_half_life_seconds,
            )
            keeps_use = settings.policy.batch.usage_weight > 0
            self.scheduler = scheduler_loop.Scheduler(
                informer_,
                api,
                clock=self.clock,
                meter_=self.metrics,
                settings=settings,
                tracer=self.tracer,
                list_intents=self._list_intents,
                progress_=self.progress,
                limits=self._list_budgets,
                backoff=self._relapses,
                numbers=usage.publish if keeps_use else statuses.publish,
            )
            idle = idle_watch.IdleWatch(
                informer_.world,
                self.utilisation,
                clock=self.clock,
                record_event=self.scheduler.recorder.record_pod_event,
                changed=self.scheduler.retry_all,
                meter_=self.metrics,
                every_seconds=self.configuration.metrics.interval_seconds,
            )
            tasks = {"queue status": statuses.run, "idleness": idle.run}
            if keeps_use:
                tasks["usage"] = usage.run
            async with self._supervised(tasks):
                try:
                    await self.scheduler.run()
                finally:
                    self.scheduler = None

    @contextlib.asynccontextmanager
    async def _supervised(
        self, work_by_name: Mapping[str, Callable[[], Awaitable[None]]]
    ) -> AsyncIterator[None]:
        """Runs background tasks meanwhile; each is restarted after an error."""
        tasks = [
            asyncio.create_task(
                supervised_tasks.run_supervised(name, work, self.clock, self.metrics)
            )
            for name, work in work_by_name.items()
        ]
        for task in tasks:
            task.add_done_callback(self._tenures.task_ended)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _list_intents(self) -> list[Any]:
        """The Intents a predecessor left. One that cannot be decoded is logged and left alone."""
        intents, _ = await client.list_all(self.transport, registry.INTENT, unreadable=_not_read)
        return intents

    async def _list_budgets(self, namespace: str) -> list[Any]:
        """The disruption budgets of a namespace, read now."""
        budgets, _ = await client.list_all(self.transport, registry.BUDGET, namespace=namespace)
        return budgets

    async def _shadow(self, report: Report) -> None:
        async with self._watching() as informer_:
            comparison = shadow.Shadow(
                informer_,
                clock=self.clock,
                meter_=self.metrics,
                settings=self.settings,
                report=report,
            )
            await comparison.run()

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[informer.Informer]:
        """An informer that is kept current meanwhile. Dovetail's own kinds join once they are installed."""
        ours = await self._first_answer(lambda over: wait_for_kind.served(over, registry.OURS))
        listed = (*self.watched, *ours, gangs.KIND)
        informer_ = informer.Informer(World(), self.clock, listed, suspects=self._suspects)
        tasks = [
            asyncio.create_task(informer_.pump()),
            asyncio.create_task(self._grouping(informer_).run()),
        ]
        for kind in self.watched:
            feed = informer.Feed(informer_, kind, trouble=self._trouble)
            following = watch.follow(
                self.transport, kind, feed, clock=self.clock, meter=self.metrics
            )
            tasks.append(asyncio.create_task(following))
        for kind in registry.OURS:
            feed = informer.Feed(informer_, kind, trouble=self._trouble)
            arrived = functools.partial(informer_.add_kind, kind)
            following = wait_for_kind.follow(
                self.transport, kind, feed, clock=self.clock, arrived=arrived, meter=self.metrics
            )
            tasks.append(asyncio.create_task(following))
        for task in tasks:
            # A dead watch ends the tenure: no decision is made on a stale World.
            task.add_done_callback(self._tenures.task_ended)
        self.informer = informer_
        try:
            yield informer_
        finally:
            self.informer = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _agents_of(
        self, settings: configurations.NodeAgentSource
    ) -> agent_devices.AgentDevices | None:
        """The node agents to ask for the utilisation of devices; None unless their Service is configured."""
        if not settings.service:
            return None
        namespace, _, service = settings.service.partition("/")
        targets = agent_targets.AgentTargets(
            self.transport, self.clock, namespace=namespace, service=service
        )
        access = agent_devices.Access(
            token_file=settings.token_file,
            timeout_seconds=settings.timeout_seconds,
            concurrency=settings.concurrency,
        )
        return agent_devices.AgentDevices(targets, access, clock=self.clock, meter_=self.metrics)

    def _grouping(self, informer_: informer.Informer) -> owner_watch.OwnerWatch:
        """Builds gangs from the objects that own pods."""
        return owner_watch.OwnerWatch(
            informer_,
            self.clock,
            served=lambda: discovery.present(
                self.transport, (*registry.OWNERS, *registry.PARENTS), registry.OLDER
            ),
            follow=lambda kind, feed: watch.follow(
                self.transport, kind, feed, clock=self.clock, meter=self.metrics
            ),
            trouble=self._trouble,
        )

    def _trouble(self, kind: str, reason: str) -> None:
        self.metrics.count(
            "dovetail_watch_restarts_total", kind=kind, reason=reason.partition(":")[0][:40]
        )
        LOG.info("watch.interrupted", extra={"kind": kind, "why": reason})

    # HTTP endpoints

    def _server(self, main: asyncio.AbstractEventLoop) -> http_server.Server:
        """Health and metrics on the background loop; endpoints that read the World run on the main loop."""
        serving = self.configuration.serving

        async def snapshot() -> str:
            return await background_loop.run_on(main, self._snapshot())

        return http_server.Server(
            metrics=self.metrics.text,
            ready=self._ready,
            alive=self._main_loop.is_alive,
            configuration=self.configuration,
            role=self._role,
            answers={"/debug/consistent": lambda: background_loop.run_on(main, self._consistent())},
            snapshot=snapshot if self.configuration.snapshot_directory else None,
            authorise=access_reviews.Reviews(client.KubeApi(self._for_lease), self.clock).authorise,
            address=serving.address,
            port=serving.port,
        )

    # Called on the background loop: each reads single values that the main loop sets.

    def _ready(self) -> dict[str, bool]:
        informer_ = self.informer
        is_standby = self.election is not None and not self.election.status.is_leading
        synced = informer_ is not None and informer_.synced.is_set()
        return {
            "picture": is_standby or synced,
            "loop": self._main_loop.is_responsive(),
            "progress": is_standby or not self.progress.is_stalled(self.clock.monotonic()),
            "tenure": is_standby or self._tenures.is_steady,
        }

    def _role(self) -> str:
        if self.election is None:
            return "alone"
        return "leader" if self.election.status.is_leading else "standby"

    async def _snapshot(self) -> str:
        """Writes the present state of the cluster into a new folder of the configured directory."""
        stamp = self.clock.now().strftime("%Y%m%dT%H%M%S.%fZ")
        folder = Path(self.configuration.snapshot_directory) / f"snapshot-{stamp}"
        await live_snapshot.save(folder, self.transport.connection, say=_log_snapshot)
        return str(folder)

    async def _consistent(self) -> dict[str, Any]:
        informer_ = self.informer
        if informer_ is None:
            return {"consistent": None, "standby": True}
        verdict = await consistency.check(
            informer_.world, self._listed, self.clock, (*self.watched, *registry.OURS)
        )
        return msgspec.to_builtins(verdict)  # type: ignore[no-any-return]

    async def _listed(self, kind: registry.Kind) -> list[Any]:
        try:
            objects, _ = await client.list_all(self.transport, kind)
        except failures.Missing:
            if kind not in registry.OURS:  # those may not be installed
                raise
            return []
        return objects


def tracer_of(settings: configurations.Tracing) -> tracing.Tracer:
    """The tracer; NoTracer unless an endpoint is configured. Raises InputError without the extra."""
    if not settings.endpoint:
        return tracing.NoTracer()
    return traces.otlp_traces(
        settings.endpoint, sample_ratio=settings.sample_ratio, version=dovetail.__version__
    )


def prometheus_of(settings: configurations.PrometheusSource) -> prometheus_api.Prometheus | None:
    """The server to ask for the utilisation of devices; None unless one is configured."""
    if not settings.url:
        return None
    endpoint = prometheus_api.Endpoint(
        url=settings.url,
        token_file=settings.token_file,
        ca_file=settings.ca_file,
        timeout_seconds=settings.timeout_seconds,
    )
    return prometheus_api.Prometheus(endpoint)


def settings_of(configuration: configurations.SchedulerConfiguration) -> scheduler_loop.Settings:
    """The settings of the scheduling loop."""
    return scheduler_loop.Settings(
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
        creates_share_templates=configuration.kai_shares.enabled,
        audit_seconds=configuration.audit.interval_seconds if configuration.audit.enabled else 0.0,
        records_scheduled=configuration.events.scheduled,
        events_per_second=configuration.events.rate_per_second,
        controller=configuration.scheduler_names[0],
        owner_seconds=OWNER_SECONDS,
        drain_seconds=DRAIN_SECONDS,
    )


async def _closed_on(
    loop: background_loop.BackgroundLoop, context: AbstractAsyncContextManager[Any]
) -> None:
    await loop.finish(context.__aexit__(None, None, None))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def json_report(stream: TextIO, totals: dict[str, int]) -> Report:
    """A report that prints one JSON line per pod and counts results."""

    def report(comparison: shadow.Comparison) -> None:
        totals[comparison.result] = totals.get(comparison.result, 0) + 1
        stream.write(plaintext.escaped_json(msgspec.json.encode(comparison).decode()) + "\n")
        stream.flush()

    return report


def _log_snapshot(progress_: str) -> None:
    LOG.info("snapshot.progress: %s", progress_)


def _not_read(name: str, problem: str) -> None:
    LOG.error("gang.intents.undecodable", extra={"intent": name, "why": problem})


async def served_kinds(over: transport.Transport) -> tuple[registry.Kind, ...]:
    """The kinds to watch: DeviceTaintRules are absent on some servers, and have older versions on others."""
    rule = await discovery.newest(over, registry.TAINT_RULE, OLD_RULE_VERSIONS)
    kinds = [rule if kind is registry.TAINT_RULE else kind for kind in registry.WATCHED]
    return tuple(kind for kind in kinds if kind is not None)


def main(arguments: Sequence[str]) -> int:
    """Runs the scheduler, or its shadow mode, as a plain process."""
    parser = argparse.ArgumentParser(prog="dovetail scheduler")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    parser.add_argument("--config")
    parser.add_argument("--shadow", action="store_true")
    options = parser.parse_args(arguments)

    configuration = configurations.SchedulerConfiguration()
    if options.config:
        configuration = configuration_file.load(options.config)
    logs.set_up(configuration.logging.format, configuration.logging.level)
    connection = client_config.load(options.kubeconfig, context=options.context)
    process = Process(connection, configuration)
    totals: dict[str, int] = {}
    asyncio.run(process.run(report=json_report(sys.stdout, totals) if options.shadow else None))
    return 0


def _stop_on_signals(work: asyncio.Task[None]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # signals arrive in the main thread, whose owner cancels us
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
