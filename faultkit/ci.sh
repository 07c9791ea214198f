#!/bin/sh
# Runs the fault kit as CI does, with PgBouncer: ./faultkit/ci.sh -for 2m
# Arguments are the kit's flags. On Debian and Ubuntu, root gets PgBouncer installed where it is missing; elsewhere the
# kit says in its report that it went without.
set -eu

cd "$(dirname "$0")"

../scripts/pgbouncer.sh || true # the kit says what it went without

# Built first: go run would hide whether the kit found a violation or could not run, and be alone to get a signal.
program=$(mktemp)
trap 'rm -f "$program"' EXIT
go build -o "$program" .
"$program" "$@"
