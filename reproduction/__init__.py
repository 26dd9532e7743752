"""The papers' tables and figures as recipes: ``python -m reproduction --list``."""
