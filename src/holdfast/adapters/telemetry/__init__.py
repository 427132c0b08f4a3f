"""Collectors of spans and totals. An adapter converts and sends; it decides nothing."""
