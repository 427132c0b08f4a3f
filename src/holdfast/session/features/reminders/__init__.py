"""Timed turns: schedules, cron expressions, commands and events."""
