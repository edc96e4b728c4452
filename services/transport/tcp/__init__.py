"""Data plane over bare TCP.

The package has the transport, and the sending and receiving end of a stream. A stream is: the length of the proof of
identity and the proof; the receiver's reply to it; messages as in data.proto, each a prefix of constant length and its
payload. With message authentication, the reply is followed by the length of a key reply and the key reply, and each
prefix and each payload by its authentication tag. After the last message the receiver sends the number of messages that
it has received.
"""
