"""Patches, server-side apply and the validation of fields."""
