"""What is answered is what happens: random clusters in which the change is really made."""

from __future__ import annotations

import pytest

from tests.answer.what_if import truth

# 422: an evicted pod comes back behind work that waited before it. 439: a pod moves from GPUs that a device plugin
# counts to published ones. 453: claims of pods that are gone are about to be collected.
SEEDS = (*range(1000, 1020), 422, 439, 453)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_answered_is_what_happens(seed: int) -> None:
    result = truth.trial(seed)
    assert result.is_true, "\n".join(truth.shown(result))
