"""`bench.fold`, as rows of the table."""

from bench import fold
from bench.ground import Ground, Row

PART = "fold"


def measure(_: Ground) -> list[Row]:
    folded, decoded = fold.measure()
    ratio = folded / decoded
    goal = f">= {fold.RATIO_WANTED:.2f} x"
    return [
        Row(
            PART,
            "decode and evolve",
            f"{folded:,.0f} events/s",
            f"{decoded:,.0f}/s",
            ratio,
            goal,
            ratio >= fold.RATIO_WANTED,
            "limit: msgspec decodes only",
        )
    ]
