"""Queries as people write them: their syntax, spelling suggestions, relevance feedback."""
