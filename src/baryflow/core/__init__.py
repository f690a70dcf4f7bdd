"""The mathematics: pure functions of mixtures, on NumPy, SciPy and POT."""
