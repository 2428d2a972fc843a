"""Creates the claim templates of GPU shares that pending pods name and that do not exist.

An admission policy adds a claim to pods with KAI's annotations, from a template whose name states the share
(`model.gpu_shares`); Kubernetes then makes the claim from it. Given the refusals of a scheduling cycle. Names outside
that pattern are never created, and nothing is created while no GPU offers shares. Never changes or deletes a template:
each goes with the pod that it was created for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live import handle as handles
from dovetail.live.bind import write_retry
from dovetail.model import gpu_shares, plan, share_templates
from dovetail.model.reasons import ReasonCode
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.schedule")
PATIENCE_SECONDS: Final = 30.0  # for an answer to one attempt
PAUSE_SECONDS: Final = 10.0  # after a failed attempt, however often pods are refused meanwhile


class ShareTemplateWriter:
    """Creates missing templates in the background, each at most once at a time."""

    def __init__(self, handle: handles.Handle, writer: write_retry.Writer) -> None:
        self._world = handle.world
        self._clock = handle.clock
        self._background = handle.background
        self._recorder = handle.recorder
        self._is_enabled = handle.settings.creates_share_templates
        self._writer = writer
        self._under_way: set[ObjectKey] = set()
        self._paused_until: dict[ObjectKey, float] = {}

    def follow(self, refusals: Iterable[plan.Refusal], decided: Iterable[pods.Pod]) -> None:
        """Begins to create the templates that refused pods wait for, of those that a cycle decided about."""
        if not self._is_enabled:
            return
        waiting_ids = {refusal.pod.uid for refusal in refusals if _waits_for_claim(refusal)}
        if not waiting_ids:
            return
        for pod in decided:
            if pod.metadata.uid not in waiting_ids:
                continue
            for template in self._missing(pod):
                key = (template.metadata.namespace, template.metadata.name)
                self._under_way.add(key)
                self._background.begin_guarded("share templates", self._create(template, key, pod))

    def _missing(self, pod: pods.Pod) -> Iterator[claims.ResourceClaimTemplate]:
        kinds = share_templates.kinds_for(self._world.shareable_gpus())
        if not kinds:
            return
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_template_name or ""
            share = gpu_shares.of_template(name)
            if share is not None and self._is_due((pod.metadata.namespace, name)):
                yield share_templates.template_for(name, share, pod=pod, kinds=kinds)

    def _is_due(self, key: ObjectKey) -> bool:
        is_there = key in self._world.templates or key in self._under_way
        return not is_there and self._paused_until.get(key, 0.0) <= self._clock.monotonic()

    async def _create(
        self, template: claims.ResourceClaimTemplate, key: ObjectKey, pod: pods.Pod
    ) -> None:
        target = apis.Target(registry.TEMPLATE, key[0])
        body = codec.encode_struct(template)
        try:
            await self._writer.with_retry(
                "share_template",
                lambda: self._writer.api.create(target, body, brief=True),
                patience_seconds=PATIENCE_SECONDS,
            )
        except (failures.AlreadyThere, failures.Missing):
            pass  # made for another pod meanwhile, or the namespace is gone
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            # The next refusal of a pod that needs the template tries again.
            LOG.warning("share_template.failed", extra={"template": key[1], "why": str(failure)})
            reason = f"the API server refuses claim template {key[1]}: {failure}"
            self._recorder.failed(pod, reason)
            self._pause(key)
        finally:
            self._under_way.discard(key)

    def _pause(self, key: ObjectKey) -> None:
        now = self._clock.monotonic()
        self._paused_until = {
            other: until for other, until in self._paused_until.items() if until > now
        }
        self._paused_until[key] = now + PAUSE_SECONDS


def _waits_for_claim(refusal: plan.Refusal) -> bool:
    return any(each.reason.code is ReasonCode.CLAIM_NOT_MADE for each in refusal.obstacles)
