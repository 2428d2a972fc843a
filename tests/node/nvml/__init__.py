"""Tests of the boundary to the hardware."""
