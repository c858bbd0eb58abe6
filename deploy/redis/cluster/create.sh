#!/bin/sh
# Creates a cluster of three masters with a replica each from six servers that run with redis.conf:
#   REDISCLI_AUTH=change-me ./create.sh redis-1:6379 redis-2:6379 … redis-6:6379
set -eu
[ $# -ge 6 ] || { echo "usage: create.sh HOST:PORT (six or more)" >&2; exit 2; }
exec redis-cli --cluster create "$@" --cluster-replicas 1 --cluster-yes
