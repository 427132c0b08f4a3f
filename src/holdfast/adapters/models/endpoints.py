"""
The models that settings name under `[models.NAME]`, beside those that have a name of their own.

Each has its own address, key and settings, so that several servers are used side by side. Settings
are read again for every call, and a changed section makes another model. A key goes only to the
address that its section names: a section with an address and without a key sends none.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.adapters.models.providers import PROVIDERS, WITH_ADDRESS, advice_for
from holdfast.errors import Unusable
from holdfast.ports.model import Model, ModelCatalogue, ModelEndpoint

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ForeignModel

NO_KEY = "none"  # the clients want a text; a server without a key does not read it


class EndpointModels:
    """A catalogue that knows the sections of settings first."""

    def __init__(
        self,
        beside: ModelCatalogue,
        endpoints: Callable[[], Mapping[str, ModelEndpoint]],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._beside = beside
        self._endpoints = endpoints
        self._environment = os.environ if environment is None else environment
        self._made: dict[str, tuple[ModelEndpoint, Model]] = {}

    def resolve(self, name: str) -> Model:
        endpoints = self._endpoints()
        endpoint = endpoints.get(name)
        if endpoint is not None:
            known = self._made.get(name)
            if known is None or known[0] != endpoint:
                known = self._made[name] = endpoint, self._make(name, endpoint)
            return known[1]
        try:
            return self._beside.resolve(name)
        except Unusable as exc:
            if exc.code != "unknown_model" or ":" in name:
                raise
            from holdfast.adapters.models.catalogue import unknown

            raise unknown(name, tuple(endpoints)) from exc

    def _make(self, name: str, endpoint: ModelEndpoint) -> Model:
        from holdfast.adapters.models.catalogue import check_key, check_package, unknown
        from holdfast.adapters.models.pydantic_ai.model import PydanticAIModel

        provider_name = endpoint.model.partition(":")[0]
        provider = PROVIDERS.get(provider_name)
        if provider is None:
            raise unknown(endpoint.model)
        if provider_name not in WITH_ADDRESS and (endpoint.base_url or endpoint.key_env):
            raise Unusable(
                f"[models.{name}] can't name an address or a key for {provider_name}",
                code="unknown_model",
                hint=f"leave base_url and key_env out, or use {', '.join(sorted(WITH_ADDRESS))}",
            )
        check_package(name, provider)
        if endpoint.key_env is not None:
            check_key(name, (endpoint.key_env,), self._environment)
        elif endpoint.base_url is None:
            check_key(name, provider.keys, self._environment)
        key = self._environment.get(endpoint.key_env) if endpoint.key_env else None
        return PydanticAIModel(
            name,
            lambda: infer_at(endpoint, key),
            advice=advice_for(provider_name, endpoint.key_env),
            endpoint=endpoint,
        )


def infer_at(endpoint: ModelEndpoint, key: str | None) -> "ForeignModel":
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

    def provider_at(provider_name: str) -> Provider[object]:
        if endpoint.base_url is None and key is None:
            return infer_provider(provider_name)
        made: Callable[..., Provider[object]] = infer_provider_class(provider_name)
        return made(
            base_url=endpoint.base_url, api_key=key or (NO_KEY if endpoint.base_url else None)
        )

    return infer_model(endpoint.model, provider_at)
