"""The tables and figures of the five papers: recipes that are data, run at two sizes, compared."""
