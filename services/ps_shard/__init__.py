"""The server of a shard: updates one range of the parameter vector with the vectors that workers push.

`machine` decides when to update and to whom to reply, `loop` receives, updates and sends, `hand_over` switches phases.
"""
