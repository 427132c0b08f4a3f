"""Chats on the gateway: it decides person, audience and boundary; a platform reports facts."""
