"""
The official conformance suite, on loopback, against our client as a person uses it.

Every scenario that the MCP library's own client passes is run, and one more. Not run:

- `auth/dpop*`: an extension that the MCP library's own client lacks too. A token that is bound to a
  key needs a proof in each request, which no server in use asks for.
- `sep-2640-*`: skills are an extension that Holdfast does not have.
"""

import os
import subprocess
import sys

import pytest

from tests.adapters.mcp.real import NODE, NPM, ROOT, needs_environment

pytestmark = [needs_environment, pytest.mark.timeout(120)]


LOGINS = (
    "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd",
    "scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined",
    "scope-step-up", "scope-retry-limit", "token-endpoint-auth-basic", "token-endpoint-auth-post",
    "token-endpoint-auth-none", "pre-registration",
)  # fmt: skip
NEWER_LOGINS = (
    "resource-mismatch", "offline-access-scope", "offline-access-not-supported",
    "authorization-server-migration", "iss-supported", "iss-not-advertised",
    "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized",
    "metadata-issuer-mismatch",
)  # fmt: skip
OTHER_LOGINS = (
    "client-credentials-jwt", "client-credentials-basic", "enterprise-managed-authorization",
    "wif-jwt-bearer", "2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback",
)  # fmt: skip


@pytest.mark.parametrize(
    ("version", "scenario"),
    [
        *[("2026-07-28", f"auth/{each}") for each in (*LOGINS, *NEWER_LOGINS)],
        *[("2025-11-25", f"auth/{each}") for each in LOGINS],
        *[("", f"auth/{each}") for each in OTHER_LOGINS],
        ("2026-07-28", "tools_call"),
        ("2026-07-28", "request-metadata"),
        ("2026-07-28", "http-standard-headers"),
        ("2026-07-28", "http-custom-headers"),
        ("2026-07-28", "http-invalid-tool-headers"),
        ("2026-07-28", "json-schema-ref-no-deref"),
        ("2026-07-28", "json-schema-2020-12-preservation"),
        ("2026-07-28", "sep-2322-client-request-state"),
        ("2025-11-25", "elicitation-sep1034-client-defaults"),
        ("2025-11-25", "sse-retry"),
        ("2025-11-25", "initialize"),
        ("2025-11-25", "tools_call"),
        ("2025-11-25", "json-schema-2020-12-preservation"),
    ],
)
def test_our_client_passes_what_concerns_it(version: str, scenario: str) -> None:
    suite = [str(NODE), str(NPM / "conformance" / "dist" / "index.js"), "client"]
    wire = ["--spec-version", version] if version else []  # else the scenario's own
    client = f"{sys.executable} -m proof.rigs.mcp_client"
    ran = subprocess.run(
        [*suite, "--command", client, "--scenario", scenario, "--timeout", "90000", *wire],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "OVERALL: PASSED" in ran.stdout + ran.stderr, ran.stdout[-3000:] + ran.stderr[-1000:]
