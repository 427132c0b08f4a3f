"""
Streams the text of the built-in models word by word. It yields to the event loop after each word,
so that followers and cancels are served.
"""

import asyncio
import re

from holdfast.ports.model import OnText

WORD = re.compile(r"\s*\S+\s?|\s+")


async def speak(text: str, *, on_text: OnText) -> None:
    for word in WORD.findall(text):
        on_text(word)
        await asyncio.sleep(0)
