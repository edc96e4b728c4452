"""Search for fault schedules that violate an invariant of training, by simulation in virtual time.

One integer seed determines a fault schedule: strategy, cluster size, events, and delays of single messages. The method
is that of FoundationDB (J. Zhou et al., "FoundationDB: a distributed unbundled transactional key value store", SIGMOD
2021, section 4): all nodes run in one process, and a seed that fails replays exactly.
"""
