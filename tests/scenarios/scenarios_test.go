// Package scenarios_test runs the scenarios for every adapter, over every protocol and store, and keeps the README's table
// of what each has.
package scenarios_test

import (
	"io"
	"log"
	"strconv"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/interceptor/interceptortest"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// adapter is an adapter with one of the protocols that it serves.
type adapter struct {
	name, protocol string
	serve          interceptortest.Serve
}

const withinProcess = "in process"

func adapters() []adapter {
	return []adapter{
		{"interceptor", "Connect, proto", overConnect()},
		{"interceptor", "Connect, JSON", overConnect(connect.WithProtoJSON())},
		{"interceptor", "gRPC", overConnect(connect.WithGRPC())},
		{"interceptor", "gRPC-Web", overConnect(connect.WithGRPCWeb())},
		{"connectv2", "Connect, proto", overConnectV2()},
		{"connectv2", "Connect, JSON", overConnectV2(connecthttp.WithProtoJSON())},
		{"connectv2", "gRPC", overConnectV2(connecthttp.WithGRPC())},
		{"connectv2", "gRPC-Web", overConnectV2(connecthttp.WithGRPCWeb())},
		{"connectv2", withinProcess, inProcess},
		{"grpcgo", "gRPC", overGRPC},
	}
}

// stores are all that there are, in the order of the table.
func stores() []string { return []string{"memory", "leased", "transactional"} }

// emptyStores makes stores of a kind, which share a database, each with a table of its own.
func emptyStores(t *testing.T, kind string) func(*testing.T) store.Store {
	t.Helper()
	if kind == "memory" {
		return func(*testing.T) store.Store { return memory.New() }
	}
	makeStore := postgres.New
	if kind == "transactional" {
		makeStore = postgres.NewTransactional
	}
	pool := pgtest.Pool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 4 })
	tables := 0
	return func(t *testing.T) store.Store {
		t.Helper()
		tables++
		s, err := makeStore(pool, postgres.WithTable("keys_"+strconv.Itoa(tables)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

// Each adapter passes each scenario over each protocol and store, and the README's table says so.
func TestScenarios(t *testing.T) {
	ran := newTable()
	for _, a := range adapters() {
		for _, kind := range stores() {
			t.Run(a.name+"/"+a.protocol+"/"+kind, func(t *testing.T) {
				c := interceptortest.Config{Serve: a.serve, Store: emptyStores(t, kind), InProcess: a.protocol == withinProcess}
				for _, s := range interceptortest.Scenarios() {
					ran.add(a, s.Name, t.Run(s.Name, func(t *testing.T) { s.Run(t, c) }))
				}
			})
		}
	}
	ran.check(t)
}

// What one adapter was told is replayed by every other, over every protocol.
func TestAcrossAdapters(t *testing.T) {
	for _, first := range adapters() {
		for _, retry := range adapters() {
			t.Run(first.name+", "+first.protocol+"/"+retry.name+", "+retry.protocol, func(t *testing.T) {
				interceptortest.Across(t, emptyStores(t, "memory"), first.serve, retry.serve)
			})
		}
	}
}
