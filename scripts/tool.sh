#!/bin/sh
# Runs a development tool in its pinned version: ./scripts/tool.sh buf lint
#
# The modules in tools/ pin them, so that nothing of theirs enters the library's own go.mod. There are three since their
# dependencies differ: buf asks for a newer protobuf than the plugins should be built with.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
case ${1-} in
buf | benchstat) module=tools ;;
golangci-lint) module=tools/lint ;;
protoc-gen-go | protoc-gen-connect-go) module=tools/plugins ;;
protoc-gen-connect-go-v2) # in the version that the adapter is compiled with
	shift
	cd "$root/interceptor/connectv2"
	GOWORK=off exec go run connectrpc.com/connect/v2/cmd/protoc-gen-connect-go "$@"
	;;
*)
	echo "usage: $0 buf|benchstat|golangci-lint|protoc-gen-go|protoc-gen-connect-go|protoc-gen-connect-go-v2 [argument ...]" >&2
	exit 2
	;;
esac

# -modfile does not go with a workspace.
GOWORK=off exec go tool -modfile="$root/$module/go.mod" "$@"
