"""Promised starts for gangs that find no room, and which pods may start ahead of them."""
