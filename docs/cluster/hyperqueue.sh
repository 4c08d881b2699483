#!/usr/bin/env bash
#HQ --name=fairtrial-agent
#HQ --cpus=all
#HQ --array=1-8
#
# An agent on each of eight HyperQueue workers, with as many slots as it has processors: hq submit docs/cluster/hyperqueue.sh
#
# Level: strict, where the nodes allow user namespaces. HyperQueue hands no control group on: limits on memory and
# processes are sampled. Check it on the same terms:
#
#     hq submit --cpus=all --wait fairtrial doctor
#
# `hq job cancel` kills an agent at once; what it ran goes to another when its lease has expired (30 s). The URL file is
# yours alone (chmod 600); calls at `strict` do not see it.
set -euo pipefail
IFS=, read -ra cpus <<<"${HQ_CPUS:-0}"
exec fairtrial agent \
    --redis "@${FAIRTRIAL_REDIS_URL_FILE:-$HOME/.config/fairtrial/redis-url}" \
    --slots "${#cpus[@]}" \
    --name "hq-${HQ_JOB_ID:-0}-${HQ_TASK_ID:-0}" \
    --sandbox strict
