"""Watches objects that own pods and keeps their gangs in the World."""
