"""``lexicept serve``: an HTTP API for an index, and a page to search, explain and steer."""
