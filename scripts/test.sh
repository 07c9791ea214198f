#!/bin/sh
# Runs every test of every module in go.work, against a real PostgreSQL.
#
#   ./scripts/test.sh                            all tests
#   ./scripts/test.sh -run TestSweep -v          flags go to go test
#   ./scripts/test.sh ./store/... -run TestSweep packages, where they come first
#
# The tests start a private PostgreSQL server of their own from the installed binaries; no running server is used or
# touched, unless TEST_DATABASE_URL names one. On Debian and Ubuntu, root gets the binaries installed where they are missing.
set -eu

cd "$(dirname "$0")/.."

have_postgres() {
	if [ -n "${TEST_DATABASE_URL-}${CONNECT_IDEMPOTENCY_PG_BIN-}" ] || command -v postgres >/dev/null; then
		return
	fi
	for binary in /usr/lib/postgresql/*/bin/postgres; do
		if [ -x "$binary" ]; then
			return
		fi
	done
	return 1
}

# Without the cluster that the package would make and start: the tests need the binaries alone.
install_postgres() {
	echo "test.sh: PostgreSQL is missing; installing Debian's package" >&2
	drop_in=/etc/postgresql-common/createcluster.d/connect-idempotency-tests.conf
	mkdir -p "${drop_in%/*}"
	trap 'rm -f "$drop_in"' EXIT
	echo "create_main_cluster = false" >"$drop_in"
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql
	rm -f "$drop_in"
	trap - EXIT
}

if ! command -v go >/dev/null; then
	echo "test.sh: Go is missing; see https://go.dev/doc/install" >&2
	exit 1
fi

# Elsewhere than on Debian the tests themselves look in more places, and say what to install where they find nothing.
if [ -e /etc/debian_version ] && ! have_postgres; then
	if [ "$(id -u)" -ne 0 ]; then
		echo "test.sh: PostgreSQL is missing; either install its binaries: sudo apt-get install postgresql
test.sh: or set TEST_DATABASE_URL to a server whose user may create databases" >&2
		exit 1
	fi
	install_postgres
fi

race=-race
compiler=$(go env CC)
if ! go list -race errors >/dev/null 2>&1 || ! command -v "${compiler%% *}" >/dev/null; then
	echo "test.sh: without the race detector, which needs cgo and a C compiler" >&2
	race=
fi

case ${1-} in
'' | -*)
	# The example's tests call buf curl. Built here, its first build takes no time from tests that run meanwhile.
	echo "test.sh: buf $(./scripts/tool.sh buf --version)" >&2
	set -- work "$@"
	;;
esac
# -count=1, since Go's cache of results knows nothing of the PostgreSQL that they came from.
# shellcheck disable=SC2086 # race may be no argument
exec go test $race -count=1 "$@"
