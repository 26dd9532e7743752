"""How lexicept-mini, the concept model in the package, was made. Nothing here is installed."""
