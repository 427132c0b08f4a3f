"""From `[telemetry]` to an exporter and its collector."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import Unusable
from holdfast.settings import Settings, SettingsSource

if TYPE_CHECKING:
    from holdfast.adapters.telemetry.otlp import OtlpCollector
    from holdfast.gateway.server.telemetry_export import TelemetryExporter
    from holdfast.runtime.service import Service


@asynccontextmanager
async def telemetry_exporter(
    service: "Service", home: Path
) -> "AsyncGenerator[TelemetryExporter | None, None]":
    """The live export that `[telemetry]` asks for; None if it names no collector."""
    settings = SettingsSource(home).now()
    if settings.telemetry_otlp is None:
        yield None
        return
    from holdfast.adapters.sqlite.export_book import NAME, SqliteExportBook
    from holdfast.gateway.server.telemetry_export import TelemetryExporter

    book = SqliteExportBook(home / NAME)
    try:
        yield TelemetryExporter(
            service,
            collector_of(settings, settings.telemetry_otlp),
            book,
            with_content=settings.telemetry_content,
        )
    finally:
        book.close()


def collector_of(settings: Settings, address: str) -> "OtlpCollector":
    """The collector at an address, with the key that settings name for their own collector."""
    from holdfast.adapters.telemetry.otlp import OtlpCollector

    name = settings.telemetry_key_env
    if name is None or address != settings.telemetry_otlp:
        return OtlpCollector(address)
    key = os.environ.get(name)
    if not key:
        raise Unusable(
            f"telemetry.key_env names {name}, which is not set",
            code="no_key",
            hint=f"set {name}, or take telemetry.key_env out of holdfast.toml",
        )
    header = settings.telemetry_key_header
    return OtlpCollector(
        address, headers={header: key} if header else {"Authorization": f"Bearer {key}"}
    )
