"""Upgrades of the GPU stack, wave by wave: what is written, by which lever, and what is waited for."""
