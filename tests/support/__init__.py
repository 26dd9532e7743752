"""Helpers that tests share. No test imports another test."""
