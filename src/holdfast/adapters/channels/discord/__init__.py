"""Discord: its gateway in, through discord.py; one request per message out."""
