"""Text on how messages on the data network are protected."""

PROTECTION_TEXTS = {  # value of `security.data` -> its effect
    "signed": "only the opening of a stream is signed, so messages that are altered later are used as they are",
    "authenticated": "each message has an authentication tag, so altered, repeated and missing messages are refused",
    "tls": "streams are encrypted and authenticated, so altered, repeated and missing messages are refused",
}
SIMULATED_TEXTS = {  # the same on the engine simulated, where messages cross no network
    "signed": "no message crosses a network in virtual time, and messages that an event corrupts are used as they are",
    "authenticated": "no message crosses a network in virtual time, and messages that an event corrupts are refused",
    "tls": "this has no effect in virtual time, where no message crosses a network",
}


def describe_data_protection(protection: str, engine: str) -> str:
    """Return one line on the protection of messages, such as "messages are signed (security.data): only the …"."""
    texts = SIMULATED_TEXTS if engine == "simulated" else PROTECTION_TEXTS
    detail = texts.get(protection)
    kind = "protected by TLS" if protection == "tls" else protection
    return f"messages are {kind} (security.data){f': {detail}' if detail else ''}"
