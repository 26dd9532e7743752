"""Queries as people write them: syntax, spelling suggestions, relevance feedback."""
