"""Items that are remembered, and who may recall them."""
