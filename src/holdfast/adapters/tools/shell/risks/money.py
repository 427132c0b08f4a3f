"""Programs that move money: nobody can take a payment back."""

import re
from collections.abc import Sequence

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
# Programs whose words are data or whose transfers move files.
_OTHERS = frozenset({"echo", "printf", "grep", "rg", "cat", "ls", "mkdir", "touch", "git", "find"})
_BILLING = re.compile(
    r"(refunds|payouts|transfers|charges|payment_intents|topups) (create|confirm|capture)\b"
)
_TEXT = "may move money. This cannot be undone."


def money_effects(name: str, words: Sequence[str]) -> list[tuple[RiskKind, str]]:
    """
    >>> money_effects("bitcoin-cli", ("-rpcwallet=w", "sendtoaddress", "bc1q", "0.5"))
    [('destructive', 'may move money. This cannot be undone.')]
    >>> money_effects("solana", ("balance",)), money_effects("git", ("transfer",))
    ([], [])
    """
    plain = [word for word in words if not word.startswith("-")][:_VERB_AT_MOST]
    is_wallet = _WALLETS.fullmatch(name) is not None
    moves = (
        (is_wallet and any(_WALLET_VERBS.fullmatch(word) for word in plain))
        or (plain[:1] == ["tx"] and plain[1:2] not in ([], ["query"], ["decode"]))
        or (plain[:1] and plain[0] in _VERBS and name not in _OTHERS)
        or (name == "stripe" and _BILLING.match(" ".join(plain)))
    )
    return [("destructive", _TEXT)] if moves else []
