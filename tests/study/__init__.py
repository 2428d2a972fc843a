"""Tests of studies: recorded workloads and placement policies."""
