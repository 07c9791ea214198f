#!/bin/sh
# Sees to it that PgBouncer is there: on Debian and Ubuntu, root gets it installed where it is missing.
set -eu

if command -v pgbouncer || [ -x /usr/sbin/pgbouncer ]; then
	exit
fi
if [ ! -e /etc/debian_version ] || [ "$(id -u)" -ne 0 ]; then
	echo "pgbouncer.sh: PgBouncer is missing; install it, on Debian and Ubuntu by: sudo apt-get install pgbouncer" >&2
	exit 1
fi
echo "pgbouncer.sh: PgBouncer is missing; installing Debian's package" >&2
apt-get update -q
# The program alone is wanted, and not its service.
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends pgbouncer
