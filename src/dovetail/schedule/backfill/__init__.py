"""Promises to those who find no room, and who may run ahead of them."""
