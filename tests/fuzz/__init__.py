"""Differential fuzzing: the same questions to our code and to upstream's, answers compared, differences made small."""
