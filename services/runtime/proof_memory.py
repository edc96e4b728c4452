"""Memory of the identity proofs that a node has accepted, so that no proof opens a second stream."""

from dataclasses import dataclass, field

from services.schema.errors import AuthenticationError

# Only nodes of the trial add entries, one per stream that they open: more entries than this are an attack or an error.
MAX_REMEMBERED_PROOFS = 65_536


@dataclass
class ProofMemory:
    """Nonces of the proofs that were accepted within the lifetime of a proof.

    A nonce is forgotten when its proof has expired, because an expired proof is rejected for its age.
    """

    max_proofs: int = MAX_REMEMBERED_PROOFS
    _expiry_by_nonce: dict[tuple[str, bytes], float] = field(default_factory=dict)  # (sender, nonce) -> seconds

    def __len__(self) -> int:
        return len(self._expiry_by_nonce)

    def add(self, sender_name: str, nonce: bytes, *, expires_at: float, now: float) -> None:
        """Remember a proof whose signature is valid.

        Args:
            sender_name: name of the node that has signed the proof.
            nonce: random bytes of the proof.
            expires_at: end of the proof's lifetime, in seconds since 1970.
            now: current time, in seconds since 1970.

        Raises:
            AuthenticationError: the proof was used before, or too many proofs are remembered.
        """
        if (sender_name, nonce) in self._expiry_by_nonce:
            raise AuthenticationError(
                f"the stream's identity proof of {sender_name} was used before: the stream is a replay"
            )
        if len(self._expiry_by_nonce) >= self.max_proofs:
            self._forget_expired(now)
        if len(self._expiry_by_nonce) >= self.max_proofs:
            raise AuthenticationError(
                f"the stream is one of more than {self.max_proofs} that were opened within the lifetime of a proof"
            )
        self._expiry_by_nonce[sender_name, nonce] = expires_at

    def _forget_expired(self, now: float) -> None:
        self._expiry_by_nonce = {nonce: end for nonce, end in self._expiry_by_nonce.items() if end >= now}
