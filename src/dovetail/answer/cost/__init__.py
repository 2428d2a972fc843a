"""What GPUs cost and who held them: money, energy and budgets, from the records of GPU accounting."""
