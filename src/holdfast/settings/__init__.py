"""
HOME/holdfast.toml: the settings of a home, read strictly and again for every decision.

A file with any error is not used at all. An unknown key, a wrong type or an identity of two people
stops the caller, with the line, the key and the nearest valid key. Without a file the defaults
hold. `keys.py` lists every section and key; docs/reference/settings.md documents them.
"""

from holdfast.settings.parser import settings_from_toml
from holdfast.settings.settings import ChannelSettings, Notify, Settings, no_such_tool
from holdfast.settings.source import (
    FILE_NAME,
    Derived,
    SettingsSource,
    load_settings,
    read_settings_file,
)

__all__ = [
    "FILE_NAME",
    "ChannelSettings",
    "Derived",
    "Notify",
    "Settings",
    "SettingsSource",
    "load_settings",
    "no_such_tool",
    "read_settings_file",
    "settings_from_toml",
]
