"""Programs for maintainers, beside the package."""
