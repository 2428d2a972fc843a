"""Which GPUs to partition how, from the work that waits: proposals, the moves they need, and what they cost."""
