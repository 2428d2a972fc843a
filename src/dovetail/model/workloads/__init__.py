"""Gangs derived from the objects that own pods: one module per kind of owner, of native trees, of KAI's groups."""
