"""Why a pod does not start: the cause, the numbers behind it, who holds what is missing, and fixes that were tried."""
