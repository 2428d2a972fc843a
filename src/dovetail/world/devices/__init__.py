"""Devices in columns, pools, usage, and the GPU ledger."""
