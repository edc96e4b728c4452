"""Server of a shard, which updates one range of the parameter vector.

It updates the range with the vectors that workers push. `machine` decides about updates and replies, `runtime` executes
them, `strategy_switch` switches the strategy.
"""
