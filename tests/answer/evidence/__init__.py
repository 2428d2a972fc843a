"""What objects and events reveal: one story per form, and the same story after it was resolved."""
