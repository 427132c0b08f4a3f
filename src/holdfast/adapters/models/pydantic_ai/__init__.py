"""Pydantic AI's providers behind the model port. Imported lazily."""
