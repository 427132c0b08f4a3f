"""
The providers that Pydantic AI supports, with the needs of each. A missing part can be reported
without importing any of them.

* `package`: the SDK that the provider imports.
* `extra`: the extra of Pydantic AI that installs the SDK.
* `keys`: environment variables, at least one of which must be set.
* `more`: further variables that may hold a secret.

A provider without `keys` finds its credentials in other ways and reports missing ones when it is
called.
"""

from typing import NamedTuple

OBJECT_PREFIX = "object:"  # a model that was passed in as an object, not by name
SCRIPT_PREFIX = "script:"
SCRIPT_OBJECT_PREFIX = "script-object:"


class Provider(NamedTuple):
    package: str
    extra: str
    keys: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


class Advice(NamedTuple):
    """Hints for a person, for failures that waiting does not mend."""

    key: str = "check the key of the provider"
    not_found: str = "is the model's name right?"


def openai_compatible(*keys: str, more: tuple[str, ...] = ()) -> Provider:
    return Provider("openai", "openai", keys, more)


# A local OpenAI-compatible server needs an address instead of a key.
OPENAI = openai_compatible("OPENAI_API_KEY", "OPENAI_BASE_URL")

PROVIDERS: dict[str, Provider] = {
    "alibaba": openai_compatible("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
    "anthropic": Provider("anthropic", "anthropic", ("ANTHROPIC_API_KEY",)),
    "azure": openai_compatible("AZURE_OPENAI_API_KEY", more=("AZURE_VOICELIVE_API_KEY",)),
    "bedrock": Provider(
        "boto3",
        "bedrock",
        more=("AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    ),
    "cerebras": openai_compatible("CEREBRAS_API_KEY"),
    "cohere": Provider("cohere", "cohere", ("CO_API_KEY",)),
    "deepseek": openai_compatible("DEEPSEEK_API_KEY"),
    "fireworks": openai_compatible("FIREWORKS_API_KEY"),
    "github": openai_compatible("GITHUB_API_KEY"),
    "google": Provider("google.genai", "google", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    "google-cloud": Provider("google.genai", "google"),
    "groq": Provider("groq", "groq", ("GROQ_API_KEY",)),
    "heroku": openai_compatible("HEROKU_INFERENCE_KEY"),
    "huggingface": Provider("huggingface_hub", "huggingface", ("HF_TOKEN",)),
    "mistral": Provider("mistralai", "mistral", ("MISTRAL_API_KEY",)),
    "moonshotai": openai_compatible("MOONSHOTAI_API_KEY"),
    "nebius": openai_compatible("NEBIUS_API_KEY"),
    "ollama": openai_compatible("OLLAMA_BASE_URL", more=("OLLAMA_API_KEY",)),
    "openai": OPENAI,
    "openai-chat": OPENAI,
    "openai-responses": OPENAI,
    "openrouter": openai_compatible("OPENROUTER_API_KEY"),
    "ovhcloud": openai_compatible("OVHCLOUD_API_KEY"),
    "sambanova": openai_compatible("SAMBANOVA_API_KEY"),
    "together": openai_compatible("TOGETHER_API_KEY"),
    "vercel": openai_compatible("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "vllm": openai_compatible("VLLM_BASE_URL", more=("VLLM_API_KEY",)),
    "xai": Provider("xai_sdk", "xai", ("XAI_API_KEY",)),
    "zai": openai_compatible("ZAI_API_KEY"),
}

# Providers whose address and key settings may name.
WITH_ADDRESS = frozenset(
    {"anthropic", "ollama", "openai", "openai-chat", "openai-responses", "vllm"}
)


def advice_for(provider: str, key: str | None = None) -> Advice:
    """
    `key` is the variable that holds the key, where it is not the provider's own.

    >>> advice_for("anthropic").key
    'check ANTHROPIC_API_KEY'
    """
    known = PROVIDERS.get(provider)
    names = [*known.keys, *known.more] if known is not None else []
    found = key or next((name for name in names if "KEY" in name or "TOKEN" in name), None)
    not_found = Advice().not_found
    if provider in ("openai", "openai-responses"):
        not_found += " for servers with chat completions only use openai-chat:"
    return Advice(f"check {found}" if found else Advice().key, not_found)


SECRETS = tuple(
    sorted(
        {
            name
            for each in PROVIDERS.values()
            for name in (*each.keys, *each.more)
            if "KEY" in name or "TOKEN" in name
        }
    )
)  # S1: their values appear nowhere, whether or not their provider is used
