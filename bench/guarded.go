package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

// answer is what a call is to be told: a message where the code is zero.
type answer struct {
	code     connect.Code
	replayed bool
}

// ask makes a call, and fails unless the answer is the wanted one.
func ask(ctx context.Context, client chargesv1connect.ChargeServiceClient, key string, msg *chargesv1.CreateChargeRequest, want answer) error {
	req := connect.NewRequest(msg)
	if key != "" {
		req.Header().Set(header, key)
	}
	res, err := client.CreateCharge(ctx, req)
	switch {
	case want.code != 0 && connect.CodeOf(err) == want.code:
		return nil
	case err != nil:
		return err
	case want.code != 0:
		return fmt.Errorf("the answer is a message, and was to be %v", want.code)
	case isReplay(res) != want.replayed:
		return fmt.Errorf("replayed is %v, and was to be %v", isReplay(res), want.replayed)
	}
	return nil
}

func isReplay(res createResponse) bool { return res.Header().Get(idempotency.HeaderReplayed) == "true" }

// serveGuarded serves create behind a guard of the mode that ends the name.
func (s *stage) serveGuarded(name string, create createFunc, opts ...idempotency.Option) ([]chargesv1connect.ChargeServiceClient, error) {
	g, err := s.guard(s.stores[modeOf(name)], opts...)
	if err != nil {
		return nil, err
	}
	return s.serve(name, create, interceptor.New(g)), nil
}

func (s *stage) first(_ context.Context, name string) (*variant, error) {
	clients, err := s.serveGuarded(name, s.byHand().guarded)
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], newKey(), s.request, answer{})
	}}, err
}

// mixed sends every hundredth call again.
func (s *stage) mixed(_ context.Context, name string) (*variant, error) {
	clients, err := s.serveGuarded(name, s.byHand().guarded)
	last := make([]string, s.callers)
	var calls atomic.Int64
	return &variant{call: func(ctx context.Context, caller int) error {
		if calls.Add(1)%100 == 0 && last[caller] != "" {
			return ask(ctx, clients[caller], last[caller], s.request, answer{replayed: true})
		}
		last[caller] = newKey()
		return ask(ctx, clients[caller], last[caller], s.request, answer{})
	}}, err
}

// waiting sends two calls with one key at the same time. One runs, the other one waits for it: what is measured is how
// long both take.
func (s *stage) waiting(_ context.Context, name string) (*variant, error) {
	clients, err := s.serveGuarded(name, s.byHand().guarded, idempotency.WithWaiting(stopTimeout))
	return &variant{call: func(ctx context.Context, caller int) error {
		key := newKey()
		var replays atomic.Int32
		both, ctx := errgroup.WithContext(ctx)
		for range 2 {
			both.Go(func() error {
				req := connect.NewRequest(s.request)
				req.Header().Set(header, key)
				res, err := clients[caller].CreateCharge(ctx, req)
				if err == nil && isReplay(res) {
					replays.Add(1)
				}
				return err
			})
		}
		if err := both.Wait(); err != nil {
			return err
		}
		if n := replays.Load(); n != 1 {
			return fmt.Errorf("%d of two calls with one key were replayed, and one was to be", n)
		}
		return nil
	}}, err
}

func (s *stage) replay(ctx context.Context, name string) (*variant, error) {
	clients, keys, err := s.storeGuarded(ctx, name)
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], keys.next(), s.request, answer{replayed: true})
	}}, err
}

// replayElsewhere replays keys of which the server's store has seen nothing yet, for a store may know more of those that it
// has. So each call has a row of its own, a copy of one that another server's guard has made.
func (s *stage) replayElsewhere(ctx context.Context, name string) (*variant, error) {
	_, settled, err := s.storeGuarded(ctx, "first-of-"+name)
	if err != nil {
		return nil, err
	}
	g, err := s.guard(s.others[modeOf(name)])
	if err != nil {
		return nil, err
	}
	clients := s.serve(name, s.byHand().guarded, interceptor.New(g))
	var unseen *storedKeys
	enter := func(ctx context.Context, calls int) (leave func() error, err error) {
		unseen = new(storedKeys)
		unseen.keys, err = s.copyRow(ctx, settled.next(), calls)
		return func() error { return nil }, err
	}
	return &variant{enter: enter, call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], unseen.next(), s.request, answer{replayed: true})
	}}, nil
}

// copyRow gives a finished row to so many keys more, and returns them.
func (s *stage) copyRow(ctx context.Context, key string, copies int) ([]string, error) {
	const sql = `insert into idempotency_keys (scope, key, procedure, state, token, attempt, request_hash, code, response_body,
			response_bytes, created_at, completed_at, expires_at)
		select scope, gen_random_uuid()::text, procedure, state, gen_random_uuid(), attempt, request_hash, code, response_body,
			response_bytes, created_at, completed_at, expires_at
		from idempotency_keys, generate_series(1, $2::bigint) where key = $1
		returning key`
	rows, err := s.admin.Query(ctx, sql, key, copies)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (s *stage) refusal(ctx context.Context, name string) (*variant, error) {
	clients, keys, err := s.storeGuarded(ctx, name)
	other := proto.CloneOf(s.request)
	other.Amount++
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], keys.next(), other, answer{code: connect.CodeFailedPrecondition})
	}}, err
}

// inProgress calls with a key whose first call runs as long as the slice.
func (s *stage) inProgress(_ context.Context, name string) (*variant, error) {
	var key string
	var running, release chan struct{}
	clients, err := s.serveGuarded(name, func(ctx context.Context, req createRequest) (createResponse, error) {
		close(running)
		<-release
		return s.byHand().guarded(ctx, req)
	})
	enter := func(ctx context.Context, _ int) (leave func() error, err error) {
		key, running, release = newKey(), make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		go func() { ended <- ask(ctx, clients[0], key, s.request, answer{}) }()
		select {
		case <-running:
		case err := <-ended:
			return nil, errors.Join(errors.New("the first call ended before its handler ran"), err)
		}
		return func() error {
			close(release)
			return <-ended
		}, nil
	}
	return &variant{enter: enter, call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], key, s.request, answer{code: connect.CodeAborted})
	}}, err
}

// storedKeys are keys of finished rows, which callers use in turn. It is safe for concurrent use.
type storedKeys struct {
	keys []string
	used atomic.Int64
}

// enoughKeys is how many finished rows replays go to.
const enoughKeys = 24

func (k *storedKeys) next() string { return k.keys[int(k.used.Add(1))%len(k.keys)] }

// storeGuarded makes finished rows by first calls.
func (s *stage) storeGuarded(ctx context.Context, name string) ([]chargesv1connect.ChargeServiceClient, *storedKeys, error) {
	clients, err := s.serveGuarded(name, s.byHand().guarded)
	if err != nil {
		return nil, nil, err
	}
	stored := new(storedKeys)
	for range enoughKeys {
		key := newKey()
		if err := ask(ctx, clients[0], key, s.request, answer{}); err != nil {
			return nil, nil, err
		}
		stored.keys = append(stored.keys, key)
	}
	return clients, stored, nil
}

// storeByHand makes finished rows by SQL.
func (s *stage) storeByHand(ctx context.Context) (*storedKeys, error) {
	stored := new(storedKeys)
	for range enoughKeys {
		key, body, bytes, err := s.sample()
		if err != nil {
			return nil, err
		}
		if err := s.byHand().insertRow(ctx, key, body, bytes); err != nil {
			return nil, err
		}
		stored.keys = append(stored.keys, key)
	}
	return stored, nil
}

// sample is a key with the answer of a call, in both forms.
func (s *stage) sample() (key string, body, bytes []byte, err error) {
	key = newKey()
	req := connect.NewRequest(s.request)
	req.Header().Set(header, key)
	_, res := charge(req)
	body, bytes, err = forms(res)
	return key, body, bytes, err
}
