"""Pydantic AI's providers behind the model port. They are imported lazily."""
