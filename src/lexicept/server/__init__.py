"""``lexicept serve``: an index behind HTTP, and a page to search, explain and steer it."""
