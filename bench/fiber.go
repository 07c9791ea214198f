package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	fiberidempotency "github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
)

// Another library's way to the same end: Fiber's idempotency middleware around the same Connect handler, as its
// documentation has it (https://docs.gofiber.io/api/middleware/idempotency). It promises less: it compares no requests,
// two servers may run one key at the same time (its lock is in the process), and the charge is committed before the answer
// is stored, so that a crash between them charges twice. Its calls go over HTTP/1.1, which is what Fiber speaks: what its
// middleware costs is to be seen beside the same handler in Fiber without it.

// fiberBare is calls without the middleware.
func (s *stage) fiberBare(ctx context.Context, name string) (*variant, error) {
	clients, err := s.serveFiber(ctx, name)
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], newKey(), s.request, answer{})
	}}, err
}

// fiberFirst is first calls.
func (s *stage) fiberFirst(ctx context.Context, name string) (*variant, error) {
	clients, err := s.serveFiberIdempotency(ctx, name)
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], newKey(), s.request, answer{})
	}}, err
}

// fiberReplay is replays, which Fiber does not mark: a call that ran again would fail, for its charge is there.
func (s *stage) fiberReplay(ctx context.Context, name string) (*variant, error) {
	clients, err := s.serveFiberIdempotency(ctx, name)
	if err != nil {
		return nil, err
	}
	stored := new(storedKeys)
	for range enoughKeys {
		key := newKey()
		if err := ask(ctx, clients[0], key, s.request, answer{}); err != nil {
			return nil, err
		}
		stored.keys = append(stored.keys, key)
	}
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], stored.next(), s.request, answer{})
	}}, nil
}

// serveFiberIdempotency is serveFiber with the middleware.
func (s *stage) serveFiberIdempotency(ctx context.Context, name string) ([]chargesv1connect.ChargeServiceClient, error) {
	if _, err := s.admin.Exec(ctx, createFiberStorage); err != nil {
		return nil, err
	}
	c := fiberidempotency.Config{KeyHeader: header, Storage: fiberStorage{s.pool}, Lifetime: 24 * time.Hour}
	return s.serveFiber(ctx, name, fiberidempotency.New(c))
}

// serveFiber serves the bare handler, in a transaction of its own, behind middleware of Fiber's, and makes the callers'
// clients.
func (s *stage) serveFiber(ctx context.Context, name string, middleware ...fiber.Handler) ([]chargesv1connect.ChargeServiceClient, error) {
	app := fiber.New()
	for _, m := range middleware {
		app.Use(m)
	}
	_, handler := chargesv1connect.NewChargeServiceHandler(service{create: s.byHand().bare})
	app.Use("/"+name, adaptor.HTTPHandler(http.StripPrefix("/"+name, handler)))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	s.ends = append(s.ends, func(ctx context.Context) error { return errors.Join(app.ShutdownWithContext(ctx), <-served) })
	clients := make([]chargesv1connect.ChargeServiceClient, s.callers)
	for i := range clients {
		// A connection of its own, as the other variants' callers have.
		client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
		s.ends = append(s.ends, func(context.Context) error {
			client.CloseIdleConnections()
			return nil
		})
		clients[i] = chargesv1connect.NewChargeServiceClient(client, "http://"+l.Addr().String()+"/"+name,
			connect.WithAcceptCompression("gzip", nil, nil))
	}
	return clients, nil
}

// fiberStorage keeps what Fiber gives it in a table of key, value and the Unix time of its end, in one statement each.
type fiberStorage struct{ pool *pgxpool.Pool }

var _ fiber.Storage = fiberStorage{}

const createFiberStorage = "create table if not exists fiber_storage (key text primary key, value bytea not null, expires bigint not null)"

// GetWithContext returns nil where there is nothing.
func (f fiberStorage) GetWithContext(ctx context.Context, key string) (value []byte, err error) {
	const sql = "select value from fiber_storage where key = $1 and (expires = 0 or expires > extract(epoch from now()))"
	err = f.pool.QueryRow(ctx, sql, key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil // as Fiber wants it
	}
	return value, err
}

// SetWithContext inserts or replaces a value. It stays for ever where its time is 0.
func (f fiberStorage) SetWithContext(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	const sql = `insert into fiber_storage (key, value, expires) values ($1, $2, $3)
		on conflict (key) do update set value = excluded.value, expires = excluded.expires`
	var expires int64
	if ttl > 0 {
		expires = time.Now().Add(ttl).Unix()
	}
	_, err := f.pool.Exec(ctx, sql, key, value, expires)
	return err
}

// DeleteWithContext deletes a value, if it is there.
func (f fiberStorage) DeleteWithContext(ctx context.Context, key string) error {
	_, err := f.pool.Exec(ctx, "delete from fiber_storage where key = $1", key)
	return err
}

// ResetWithContext deletes all values.
func (f fiberStorage) ResetWithContext(ctx context.Context) error {
	_, err := f.pool.Exec(ctx, "delete from fiber_storage")
	return err
}

// Get is GetWithContext.
func (f fiberStorage) Get(key string) ([]byte, error) {
	return f.GetWithContext(context.Background(), key)
}

// Set is SetWithContext.
func (f fiberStorage) Set(key string, value []byte, ttl time.Duration) error {
	return f.SetWithContext(context.Background(), key, value, ttl)
}

// Delete is DeleteWithContext.
func (f fiberStorage) Delete(key string) error { return f.DeleteWithContext(context.Background(), key) }

// Reset is ResetWithContext.
func (f fiberStorage) Reset() error { return f.ResetWithContext(context.Background()) }

// Close leaves the pool to the stage.
func (fiberStorage) Close() error { return nil }
