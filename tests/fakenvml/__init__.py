"""Tests of the fake GPUs, with the unmodified nvidia-ml-py as their client."""
