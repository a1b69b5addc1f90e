#!/bin/sh
# Runs its arguments in the namespace of this rank, before the machine's other work: the link's delay is to be seen, and
# not a neighbour's time slice. The test gives the prefix, MPICH's launcher the rank.
exec nice -n -10 ip netns exec "$NETNS_PREFIX$PMI_RANK" "$@"
