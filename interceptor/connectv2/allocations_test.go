package connectv2_test

import (
	"context"
	"strconv"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectinprocess"

	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/internal/race"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// Guard and interceptor make no more than so many allocations for a charge, the memory store's among them, beyond what the
// bare call makes. Whoever saves one lowers its number here.
func TestAllocations(t *testing.T) {
	bare, guarded := newLocal(t), newLocal(t, connectv2.NewServerInterceptor(backend{store: memory.New()}.guard(t)))
	for name, test := range map[string]struct {
		key  string // "" for none
		once bool   // one call with it, else a new key for each call
		most float64
	}{
		"first call": {key: "first", most: 29},
		"replay":     {key: "replayed", once: true, most: 19},
		"no key":     {once: true, most: 0},
	} {
		if race.Enabled {
			test.most += 2
		}
		allocations := func(l local) float64 {
			call := 0
			return testing.AllocsPerRun(200, func() {
				key := test.key
				if !test.once {
					key += strconv.Itoa(call)
				}
				call++
				l.call(t, key)
			})
		}
		without, with := allocations(bare), allocations(guarded)
		if with-without > test.most {
			t.Errorf("%s: %v allocations, and %v without the interceptor, want at most %v more", name, with, without, test.most)
		}
	}
}

// local is a client that has its server in its own process.
type local struct {
	client chargesv1connect.ChargeServiceClient
}

func newLocal(t testing.TB, interceptors ...connect.ServerInterceptor) local {
	t.Helper()
	res := created("ch_1")
	s := connect.NewServer(interceptors...)
	chargesv1connect.RegisterChargeServiceHandler(s, service{create: func(context.Context, createRequest) (createResponse, error) {
		return res, nil
	}})
	return local{over(connectinprocess.New(s)).ChargeServiceClient}
}

// call makes a call with a key, or without one where key is empty.
func (l local) call(t testing.TB, key string) {
	t.Helper()
	ctx, info := connect.NewClientContext(t.Context())
	if key != "" {
		info.RequestHeader().Set("Idempotency-Key", key)
	}
	if _, err := l.client.CreateCharge(ctx, request("a charge")); err != nil {
		t.Fatal(err)
	}
}
