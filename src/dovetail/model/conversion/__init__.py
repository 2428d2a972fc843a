"""Other schedulers' objects into ours, with an account of every field."""

from typing import Final

# The API groups whose objects can be converted, and as what `dovetail migrate` knows their scheduler.
SCHEDULERS: Final = {
    "kueue.x-k8s.io": "kueue",
    "scheduling.run.ai": "kai",
    "kai.scheduler": "kai",
    "kai.resources": "kai",
}
