"""A collector's key goes to the collector of the settings, and to no other address."""

import pytest

from holdfast.assembly.telemetry import collector_of
from holdfast.errors import Unusable
from holdfast.settings import Settings

OURS, OTHER = "https://collector.example.com", "https://elsewhere.example.com"
SETTINGS = Settings(telemetry_otlp=OURS, telemetry_key_env="COLLECTOR_KEY")


def test_the_key_goes_to_the_address_of_the_settings_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLLECTOR_KEY", "c0llector-key")
    assert collector_of(SETTINGS, OURS).headers == {"Authorization": "Bearer c0llector-key"}
    assert collector_of(SETTINGS, OTHER).headers == {}


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLLECTOR_KEY", raising=False)
    with pytest.raises(Unusable, match="COLLECTOR_KEY, which is not set"):
        collector_of(SETTINGS, OURS)
