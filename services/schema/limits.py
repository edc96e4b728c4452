"""Upper limits on the size of a scenario.

A scenario beyond a limit is rejected when its file is read, instead of occupying the host for hours or its whole
memory. Each limit is at least thirty times the largest value in a shipped scenario, except that of generated numbers.
"""

# Planning one trial takes time that grows with the square of the number of nodes: half a minute for 1,024 workers.
MAX_WORKERS = 1024
MAX_SERVERS = 1024
# Every trial is validated before the first one starts, which takes about 20 s for this many.
MAX_TRIALS = 10_000
# Before every further attempt at a trial, Ensayo waits for up to a minute.
MAX_ATTEMPTS = 100
# Every worker logs every step: ten million steps are gigabytes of logs per worker.
MAX_STEPS = 10_000_000
# Every node holds the parameters several times: this many take 4 GB per copy in fp32.
MAX_PARAMETERS = 1_000_000_000
# Generated data are held in memory several times, as numbers of 8 bytes: this many take 160 MB per copy.
MAX_GENERATED_NUMBERS = 20_000_000
# If workers own their samples, every process plans the shares of all workers in all steps of an epoch in advance: this
# many take 16 MB, and up to half a minute.
MAX_PARTITION_SHARES = 2_000_000
# Wall time is virtual time multiplied by the dilation: one virtual second already takes more than eleven days.
MAX_DILATION = 1_000_000
