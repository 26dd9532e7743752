"""What lexicept is measured by; see README.md."""
