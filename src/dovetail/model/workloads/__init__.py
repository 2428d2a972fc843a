"""Gangs derived from the objects that own pods: `owner_gangs` for each kind of owner, `native_gangs` for trees."""
