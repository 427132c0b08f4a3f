"""
How the built-in models speak: word by word, giving way to everybody else after each, so that
followers and cancels are served.
"""

import asyncio
import re

from holdfast.ports.model import OnText

WORD = re.compile(r"\s*\S+\s?|\s+")


async def speak(text: str, *, on_text: OnText) -> None:
    for word in WORD.findall(text):
        on_text(word)
        await asyncio.sleep(0)
