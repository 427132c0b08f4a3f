"""
HOME/holdfast.toml: what people decide about a home, read strictly and again for every decision.

A file that is not wholly understood is not used at all: an unknown key, a wrong type or a person
who could be two people stops whoever asks, with the line, the key and the nearest valid one. There
is no file: the defaults hold. `keys.py` is the list of everything that may stand in it;
docs/settings.md says it to people.
"""

from holdfast.settings.reading import settings_from_toml
from holdfast.settings.settings import Notify, Settings, no_such_tool
from holdfast.settings.source import FILE_NAME, SettingsSource, load_settings, read_settings_file

__all__ = [
    "FILE_NAME",
    "Notify",
    "Settings",
    "SettingsSource",
    "load_settings",
    "no_such_tool",
    "read_settings_file",
    "settings_from_toml",
]
