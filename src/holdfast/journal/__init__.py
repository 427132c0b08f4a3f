"""
The bytes of a journal, framed so that every change is detected: framing, mac chain, segments,
anchor, fence, verification. Pure.
"""
