#!/usr/bin/env bash
# One agent on each host, by ssh, as a service of your own user there.
#
#     docs/cluster/ssh.sh URL_FILE SLOTS HOST...
#
# Level: strict, where user namespaces are allowed. `Delegate=yes` hands the agent a control group, so that the kernel
# holds calls to their limits on memory and processes. Check it on the same terms:
#
#     ssh HOST systemd-run --user --pipe --wait --collect -p Delegate=yes fairtrial doctor
#
# The URL goes by standard input: it is on no command line, and in no file over there. End an agent with
# `ssh HOST systemctl --user stop fairtrial-agent`; what runs may end first. `loginctl enable-linger` on the host lets
# it go on when you log out.
set -euo pipefail
url_file=$1 slots=$2
shift 2
place=(systemd-run --user --pipe --quiet --collect --unit=fairtrial-agent
    --property=Delegate=yes --property=KillMode=mixed --property=TimeoutStopSec=11min)
agent=(fairtrial agent --redis @- --slots "$slots" --sandbox strict)
for host in "$@"; do
    ssh "$host" "${place[@]}" "${agent[@]}" <"$url_file" &
done
wait
