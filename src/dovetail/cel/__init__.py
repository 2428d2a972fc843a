"""The expression language of device selectors: text in, a verdict per device out. Never raises on hostile input."""
