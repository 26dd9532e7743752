"""The report about an index: one HTML file that needs no network and has no script."""
