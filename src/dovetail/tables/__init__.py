"""Rows and structs that people look at, made of a cluster's objects. Never reads a cluster, never prints."""
