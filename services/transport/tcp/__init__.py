"""Data plane over bare TCP.

The package has the transport, and the sending and receiving end of a stream. A stream is: the length of the proof of
identity, the proof, and the opening of the stream; the receiver's reply to the proof, and the number of the last
message that it has; messages as in data.proto, each its number, a prefix of constant length and its payload. Meanwhile,
the receiver acknowledges messages by the number of the last one that it has. With message authentication, the reply to
the proof is followed by the length of a key reply and the key reply, and each head (number and prefix) and each payload
by its authentication tag. A stream may continue over another connection, which begins in the same way.
"""
