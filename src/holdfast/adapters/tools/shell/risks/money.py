"""Programs that move money: nobody can take a payment back."""

import re
from collections.abc import Sequence

from holdfast.adapters.tools.shell.risks.always import ALWAYS
from holdfast.adapters.tools.shell.risks.simple import SHELLS, is_interpreter
from holdfast.adapters.tools.shell.risks.unknown_programs import TAKES_DATA
from holdfast.adapters.tools.shell.risks.verbs import VERBS
from holdfast.session.authority.plan import RiskKind

_VERB_AT_MOST = 4  # `gaiad tx bank send`
_WALLETS = re.compile(
    r"(bitcoin|litecoin|dogecoin|dash|zcash|elements|lightning|monero-wallet|cardano)-cli"
    r"|lncli|cast|solana|spl-token|near|stellar|xrpl|eth|geth|bcli|sui|aptos|tezos-client|flow"
)
_WALLET_VERBS = re.compile(
    r"send\S*|transfer\S*|pay|pay(invoice|out)\S*|withdraw\S*|fundchannel|closechannel|burn|sweep\S*"
)
_VERBS = frozenset({"transfer", "withdraw", "payinvoice", "sendcoins", "sendpayment", "payout"})
# Programs whose first word is a file or a machine, beside those that the tables know.
_OTHERS = frozenset({"du", "gzip", "open", "pytest", "scp", "sftp", "ssh", "unzip", "zip"})
_BILLING = re.compile(
    r"(refunds|payouts|transfers|charges|payment_intents|topups) (create|confirm|capture)\b"
)
_TEXT = "may move money. This cannot be undone."


def money_effects(name: str, words: Sequence[str]) -> list[tuple[RiskKind, str]]:
    """
    >>> money_effects("bitcoin-cli", ("-rpcwallet=w", "sendtoaddress", "bc1q", "0.5"))
    [('destructive', 'may move money. This cannot be undone.')]
    >>> money_effects("solana", ("balance",)), money_effects("cp", ("transfer", "backup"))
    ([], [])
    """
    plain = [word for word in words if not word.startswith("-")][:_VERB_AT_MOST]
    is_wallet = _WALLETS.fullmatch(name) is not None
    moves = (
        (is_wallet and any(_WALLET_VERBS.fullmatch(word) for word in plain))
        or (_takes_a_verb(name, words) and _is_payment(plain))
        or (name == "stripe" and _BILLING.match(" ".join(plain)))
    )
    return [("destructive", _TEXT)] if moves else []


def _takes_a_verb(name: str, words: Sequence[str]) -> bool:
    """Return whether a program that no table knows gets a word and something to do it with."""
    known = name in VERBS or name in ALWAYS or name in TAKES_DATA or name in _OTHERS
    return len(words) > 1 and not known and name not in SHELLS and not is_interpreter(name)


def _is_payment(plain: Sequence[str]) -> bool:
    if plain[:1] == ["tx"]:
        return plain[1:2] not in ([], ["query"], ["decode"])
    return bool(plain) and plain[0] in _VERBS
