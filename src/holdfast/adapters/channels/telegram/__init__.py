"""Telegram over its Bot API: long polling in, one request per message out."""
