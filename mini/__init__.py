"""How lexicept-mini, the model in the package, is made. Nothing here is installed."""
