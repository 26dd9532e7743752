"""Long runs, outside of the tests: ``make soak``."""
