package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// rpc says how many flights a whole RPC takes, warm. Its handler sends one statement.
type rpc struct{ answer, behind int } // to the answer, and behind it

var rpcs = map[string]map[string]rpc{
	"leased": {
		"no key":             {answer: 1},
		"first call":         {answer: 2 + 1},
		"an error kept":      {answer: 2 + 1},
		"an error released":  {answer: 2 + 1},
		"replay":             {answer: 1},
		"replay of an error": {answer: 1},
		"replay elsewhere":   {answer: 1},
		"refusal":            {answer: 1},
		"refusal elsewhere":  {answer: 1},
		"in progress":        {answer: 1},
		"take-over":          {answer: 1 + 2 + 1},
	},
	"transactional": {
		"no key":             {answer: 1},
		"first call":         {answer: flightsByHand},
		"an error kept":      {answer: flightsByHand},
		"an error released":  {answer: flightsByHand},
		"replay":             {answer: 1},
		"replay of an error": {answer: 1},
		"replay elsewhere":   {answer: 1, behind: 1},
		"refusal":            {answer: 1},
		"refusal elsewhere":  {answer: 1, behind: 1},
		"in progress":        {answer: 1, behind: 1},
		"take-over":          {answer: 2 + flightsByHand},
	},
}

// flightsByHand is what a handler's own transaction takes: BEGIN, the statement and COMMIT.
const flightsByHand = 3

// Each kind of RPC takes its flights to the database, and no more.
func TestFlightsOfAnRPC(t *testing.T) {
	for mode, makeStore := range map[string]func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error){
		"leased": postgres.New, "transactional": postgres.NewTransactional,
	} {
		t.Run(mode, func(t *testing.T) {
			m := newRPCMeter(t, makeStore)
			if got := m.took(m.handByHand); got != flightsByHand {
				t.Fatalf("by hand it takes %d flights, want %d", got, flightsByHand)
			}
			for name, want := range rpcs[mode] {
				prepare, ok := m.kinds()[name]
				if !ok {
					t.Errorf("%q is not known", name)
					continue
				}
				if got := m.took(prepare()); got != want.answer+want.behind {
					t.Errorf("%s: %d flights, want %d and %d behind the answer", name, got, want.answer, want.behind)
				}
			}
			if got, want := len(rpcs[mode]), len(m.kinds()); got != want {
				t.Errorf("%d kinds of RPC have a price, want all %d", got, want)
			}
		})
	}
}

// rpcMeter makes RPCs and counts their flights.
type rpcMeter struct {
	*testing.T
	backend
	sent      flights
	client    chargesv1connect.ChargeServiceClient
	elsewhere chargesv1connect.ChargeServiceClient // of another process's server, on the same table
	running   chan struct{}                        // one for each handler that is held
	goOn      chan struct{}
	keys      int
}

// What a charge's description asks of the handler.
const (
	toSucceed = "success"
	toBeKept  = "an error that is kept"
	toBeFreed = "an error that frees the key"
	toBeHeld  = "success, when it may go on"
)

func newRPCMeter(t *testing.T, makeStore func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error)) *rpcMeter {
	t.Helper()
	m := &rpcMeter{T: t, running: make(chan struct{}), goOn: make(chan struct{})}
	elsewhere := onDatabase(t, pgtest.Database(t), makeStore, 4)
	pool := pgtest.Pool(t, elsewhere.pool.Config().ConnString(), m.sent.on, func(c *pgxpool.Config) {
		// A connection that has idled for long is pinged, which would count as a flight.
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	s, err := makeStore(pool)
	if err != nil {
		t.Fatal(err)
	}
	m.backend = backend{store: s, pool: pool}
	m.client = guarded(t, m.guard(t), service{create: m.create}).client(t, "connect proto")
	m.elsewhere = guarded(t, elsewhere.guard(t), service{create: m.create}).client(t, "connect proto")
	return m
}

func (m *rpcMeter) create(ctx context.Context, req createRequest) (createResponse, error) {
	if err := m.effect(ctx, req.Msg.Description); err != nil {
		return nil, err
	}
	switch req.Msg.Description {
	case toBeKept:
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("declined"))
	case toBeFreed:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("not now"))
	case toBeHeld:
		m.running <- struct{}{}
		select {
		case <-m.goOn:
		case <-m.Context().Done(): // the test has failed
		}
	}
	return created("ch_1"), nil
}

// handByHand does what the handler does, in a transaction without a guard.
func (m *rpcMeter) handByHand() {
	m.Helper()
	err := pgx.BeginFunc(m.Context(), m.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(m.Context(), "insert into effects values ('by hand')")
		return err
	})
	if err != nil {
		m.Fatal(err)
	}
}

// took counts the flights of f and of what follows behind its answer.
func (m *rpcMeter) took(f func()) int {
	m.Helper()
	before := m.sent.n.Load()
	f()
	if err := m.store.(store.Drainer).Drain(within(m.T)); err != nil {
		m.Fatal(err)
	}
	return int(m.sent.n.Load() - before)
}

func (m *rpcMeter) newKey() string {
	m.keys++
	return fmt.Sprintf("key-%d", m.keys)
}

// call makes a call, whose answer must be the wanted one: a refusal where there is a reason, else an error of the
// handler's where there is a code, else success.
func (m *rpcMeter) call(client chargesv1connect.ChargeServiceClient, req createRequest, code connect.Code, reason string) {
	m.Helper()
	_, err := client.CreateCharge(within(m.T), req)
	switch {
	case reason != "":
		mustRefuse(m.T, err, code, reason)
	case code == 0 && err != nil, code != 0 && connect.CodeOf(err) != code:
		m.Fatalf("%s: %v, want code %d", req.Msg.Description, err, code)
	}
}

// kinds are all kinds of RPC: each prepares one, and returns what makes it.
func (m *rpcMeter) kinds() map[string]func() func() {
	first := func(key, description string, code connect.Code) func() {
		return func() { m.call(m.client, charge(key, description), code, "") }
	}
	// after is a call with a key that had its first call.
	after := func(at chargesv1connect.ChargeServiceClient, was, is string, code connect.Code, reason string) func() func() {
		return func() func() {
			key, wasCode := m.newKey(), connect.Code(0)
			if was == toBeKept {
				wasCode = connect.CodeFailedPrecondition
			}
			m.call(at, charge(key, was), wasCode, "")
			return func() { m.call(m.client, charge(key, is), code, reason) }
		}
	}
	return map[string]func() func(){
		"no key":             func() func() { return first("", toSucceed, 0) },
		"first call":         func() func() { return first(m.newKey(), toSucceed, 0) },
		"an error kept":      func() func() { return first(m.newKey(), toBeKept, connect.CodeFailedPrecondition) },
		"an error released":  func() func() { return first(m.newKey(), toBeFreed, connect.CodeUnavailable) },
		"replay":             after(m.client, toSucceed, toSucceed, 0, ""),
		"replay elsewhere":   after(m.elsewhere, toSucceed, toSucceed, 0, ""),
		"replay of an error": after(m.client, toBeKept, toBeKept, connect.CodeFailedPrecondition, ""),
		"refusal":            after(m.client, toSucceed, toBeKept, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused),
		"refusal elsewhere":  after(m.elsewhere, toSucceed, toBeKept, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused),
		"in progress":        m.inProgress,
		"take-over":          m.takeOver,
	}
}

// inProgress is a call whose first one runs elsewhere, which sends nothing that is counted here.
func (m *rpcMeter) inProgress() func() {
	key, over := m.newKey(), make(chan error, 1)
	go func() {
		_, err := m.elsewhere.CreateCharge(within(m.T), charge(key, toBeHeld))
		over <- err
	}()
	<-m.running
	return func() {
		m.call(m.client, charge(key, toBeHeld), connect.CodeAborted, idempotency.ReasonKeyInProgress)
		m.goOn <- struct{}{}
		if err := <-over; err != nil {
			m.Error(err)
		}
	}
}

// takeOver leaves a key as a process does that died while the call ran.
func (m *rpcMeter) takeOver() func() {
	key := m.newKey()
	m.call(m.elsewhere, charge(key, toSucceed), 0, "")
	const died = `update idempotency_keys set state = 'in_progress', lease_until = now() - interval '1 second', completed_at = null,
		code = null, response_body = null, response_bytes = null where key = $1`
	if tag, err := m.pool.Exec(m.Context(), died, key); err != nil || tag.RowsAffected() != 1 {
		m.Fatal(tag, err)
	}
	return func() { m.call(m.client, charge(key, toSucceed), 0, "") }
}
