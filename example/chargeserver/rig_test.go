package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
)

// programVariable makes the test binary the program itself, in which tok_slow lasts until its call is cut off.
const programVariable = "CHARGESERVER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(program(stuck))
	}
	pgtest.Main(m)
}

func stuck(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// limit bounds what must happen, so that a test that waits in vain says for what.
const limit = time.Minute

// kind is where a rig's charges and keys live.
type kind string

const (
	inTransactional kind = "transactional"
	inLeased        kind = "leased"
	inMemory        kind = "memory"
)

func everywhere() []kind { return []kind{inTransactional, inLeased, inMemory} }

// caller calls a server.
type caller struct {
	chargesv1connect.ChargeServiceClient
}

func newCaller(t *testing.T, url string) caller {
	t.Helper()
	return caller{chargesv1connect.NewChargeServiceClient(newClient(t, (*http.Protocols).SetHTTP1), url)}
}

// rig is a server that a test calls.
type rig struct {
	caller
	url      string
	backend  *backend
	slow     *slowCard
	outcomes chan idempotency.Outcome // of every guarded call
}

// newRig starts a server with flags, on a database of its own.
func newRig(t *testing.T, in kind, flags ...string) *rig {
	t.Helper()
	switch in {
	case inMemory:
	default:
		flags = append(flags, "-mode", string(in), "-database-url", pgtest.Database(t))
	}
	c := mustParse(t, flags...)
	log := slog.New(slog.DiscardHandler)
	b, err := openBackend(t.Context(), c, nothingInstalled, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	r := &rig{backend: b, slow: newSlowCard(), outcomes: make(chan idempotency.Outcome, 1000)}
	guard, err := newGuard(b.store, c, log, idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
		r.outcomes <- e.Outcome
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.serve(t, newHTTPServer(newMux(newService(b.ledger, newCards(r.slow.wait), log), guard), log))
	r.caller = newCaller(t, r.url)
	return r
}

func (r *rig) serve(t *testing.T, server *http.Server) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// newClient makes a client that speaks one version of HTTP.
func newClient(t *testing.T, set func(*http.Protocols, bool)) *http.Client {
	t.Helper()
	var protocols http.Protocols
	set(&protocols, true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func mustParse(t *testing.T, args ...string) config {
	t.Helper()
	c, err := parseFlags(args, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nothingInstalled is a launcher on a machine without PostgreSQL.
func nothingInstalled(context.Context, pglaunch.Config) (*pglaunch.Server, error) {
	return nil, pglaunch.ErrNoBinaries
}

// slowCard is what tok_slow waits for, in a test's hands.
type slowCard struct {
	entered chan struct{} // gets one element for each call
	goOn    func()
	going   chan struct{}
}

func newSlowCard() *slowCard {
	s := &slowCard{entered: make(chan struct{}, 100), going: make(chan struct{})}
	s.goOn = sync.OnceFunc(func() { close(s.going) })
	return s
}

func (s *slowCard) wait(ctx context.Context) error {
	s.entered <- struct{}{}
	select {
	case <-s.going:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// receive takes the next element, and fails the test where none comes.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(limit):
		t.Fatalf("in vain: %s", what)
		panic("unreachable")
	}
}

// charge is a request to charge a card.
func charge(token string) *chargesv1.CreateChargeRequest {
	return &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "EUR", CardToken: token, Description: "Coffee beans"}
}

// keyed makes a request with a key; "" sends none.
func keyed[T any](key string, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	if key != "" {
		req.Header().Set("Idempotency-Key", key)
	}
	return req
}

// mustCharge charges a card and returns the charge's id, and whether the answer was a replay.
func (c caller) mustCharge(t *testing.T, key, token string) (id string, replayed bool) {
	t.Helper()
	res, err := c.CreateCharge(t.Context(), keyed(key, charge(token)))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetCharge().GetId(), isReplay(res.Header())
}

func isReplay(h http.Header) bool { return h.Get("Idempotency-Replayed") == "true" }

// wantCharges fails the test unless the ledger has charges with these ids, in this order.
func (c caller) wantCharges(t *testing.T, ids ...string) []*chargesv1.Charge {
	t.Helper()
	stream, err := c.ListCharges(t.Context(), connect.NewRequest(&chargesv1.ListChargesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var got []*chargesv1.Charge
	for stream.Receive() {
		got = append(got, stream.Msg().GetCharge())
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(ids) {
		t.Fatalf("there are %d charges, want %d: %v", len(got), len(ids), got)
	}
	for i, id := range ids {
		if got[i].GetId() != id {
			t.Errorf("charge %d is %s, want %s", i, got[i].GetId(), id)
		}
	}
	return got
}

// wantError fails the test unless err has the code and, as a refusal of the guard's, the reason.
func wantError(t *testing.T, err error, code connect.Code, reason string) {
	t.Helper()
	if e := connectError(t, err); e.Code() != code || reasonOf(t, e) != reason {
		t.Fatalf("got %v, want %v with the reason %q", err, code, reason)
	}
}

func connectError(t *testing.T, err error) *connect.Error {
	t.Helper()
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		t.Fatalf("got %v, want an error of connect's", err)
	}
	return e
}

func reasonOf(t *testing.T, e *connect.Error) string {
	t.Helper()
	for _, d := range e.Details() {
		value, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := value.(*errdetails.ErrorInfo); ok && info.GetDomain() == idempotency.Domain {
			return info.GetReason()
		}
	}
	return ""
}
