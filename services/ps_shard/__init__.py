"""The server of a shard: updates one range of the parameter vector with the vectors that workers push.

`machine` decides about updates and replies, `runtime` executes them, `strategy_switch` switches the strategy.
"""
