package interceptor_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/internal/race"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// Guard and interceptor make no more than so many allocations for a charge, the memory store's among them, beyond what the
// bare call makes. Whoever saves one lowers its number here.
func TestAllocations(t *testing.T) {
	bare, guarded := newLocal(t), newLocal(t, interceptor.New(backend{store: memory.New()}.guard(t)))
	for name, test := range map[string]struct {
		key  string // "" for none
		once bool   // one call with it, else a new key for each call
		most float64
	}{
		"first call": {key: "first", most: 29},
		"replay":     {key: "replayed", once: true, most: 22},
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

// local is a handler of charges that is called without a network.
type local struct {
	handler http.Handler
	body    []byte
}

func newLocal(t testing.TB, interceptors ...connect.Interceptor) local {
	t.Helper()
	res := created("ch_1")
	svc := service{create: func(context.Context, createRequest) (createResponse, error) { return res, nil }}
	_, handler := chargesv1connect.NewChargeServiceHandler(svc, connect.WithInterceptors(interceptors...))
	body, err := proto.Marshal(charge("", "a charge").Msg)
	if err != nil {
		t.Fatal(err)
	}
	return local{handler, body}
}

// call makes a call with a key, or without one where key is empty.
func (l local) call(t testing.TB, key string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, chargesv1connect.ChargeServiceCreateChargeProcedure, bytes.NewReader(l.body))
	req.Header["Content-Type"] = []string{"application/proto"}
	if key != "" {
		req.Header["Idempotency-Key"] = []string{key}
	}
	w := httptest.NewRecorder()
	l.handler.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Fatalf("%d, %s", w.Code, w.Body)
	}
}
