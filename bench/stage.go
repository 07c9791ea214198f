package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// A stage's pool has a connection for each caller and some to spare, within these bounds: a server takes 100 connections by
// default, and all stages of a group are there at the same time.
const (
	minConns   = 8
	maxConns   = 32
	spareConns = 2
)

// conditions are those under which variants are measured.
type conditions struct {
	label    string // among those that are compared with it
	at       string // the database's URL
	callers  int
	message  int // bytes of a request
	calls    int // of each caller in a slice
	variants []string
	count    bool // what a call sends and writes
}

// stage is a server with its callers' clients, on one database, under one set of conditions.
type stage struct {
	conditions
	request *chargesv1.CreateChargeRequest
	pool    *pgxpool.Pool
	other   *pgxpool.Pool // another server's; it has no connection before it is used
	traffic *traffic      // of both
	admin   *pgxpool.Pool // is not counted
	stores  map[string]*postgres.Store
	others  map[string]*postgres.Store // another server's, on the same tables
	guards  []*idempotency.Guard
	mux     *http.ServeMux
	server  *http.Server
	served  chan error
	url     string
	clients []*http.Client // one of each caller, with a connection of its own
	ends    []func(context.Context) error
}

// newStage builds a stage without variants.
func newStage(ctx context.Context, c conditions) (_ *stage, err error) {
	s := &stage{
		conditions: c, request: requestOf(c.message), traffic: new(traffic), mux: http.NewServeMux(), served: make(chan error, 1),
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *stage) connect(ctx context.Context) (err error) {
	conns := min(max(s.callers+spareConns, minConns), maxConns)
	if s.pool, err = newPool(ctx, s.at, conns, s.traffic); err != nil {
		return err
	}
	if s.other, err = newPool(ctx, s.at, conns, s.traffic); err != nil {
		s.pool.Close()
		return err
	}
	if s.admin, err = newPool(ctx, s.at, 1, nil); err != nil {
		s.pool.Close()
		s.other.Close()
	}
	return err
}

func (s *stage) open(ctx context.Context) (err error) {
	if s.stores, err = newStores(s.pool); err != nil {
		return err
	}
	if s.others, err = newStores(s.other); err != nil {
		return err
	}
	return s.listen(ctx)
}

// newStores makes a store of each mode.
func newStores(pool *pgxpool.Pool) (map[string]*postgres.Store, error) {
	leased, err := postgres.New(pool)
	if err != nil {
		return nil, err
	}
	transactional, err := postgres.NewTransactional(pool)
	return map[string]*postgres.Store{"leased": leased, "transactional": transactional}, err
}

// requestOf is a request of so many bytes. Its text is random, so that neither side can make it smaller.
func requestOf(bytes int) *chargesv1.CreateChargeRequest {
	req := &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "EUR", CardToken: "tok_ok", Description: "x"}
	length := bytes - proto.Size(req)
	var text strings.Builder
	for text.Len() < length {
		text.WriteString(rand.Text())
	}
	req.Description = text.String()[:length]
	return req
}

func newPool(ctx context.Context, at string, conns int, t *traffic) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(at)
	if err != nil {
		return nil, err
	}
	c.MaxConns = int32(conns) //nolint:gosec // at most maxConns
	if t != nil {
		t.watch(c.ConnConfig)
	}
	return pgxpool.NewWithConfig(ctx, c)
}

// listen serves HTTP/2 without TLS, and makes the clients. Nothing is compressed: that would cost the same with every
// variant, and hide what differs.
func (s *stage) listen(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{Handler: s.mux, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	s.url = "http://" + l.Addr().String()
	go func() { s.served <- s.server.Serve(l) }()
	for range s.callers {
		s.clients = append(s.clients, &http.Client{Transport: &http.Transport{Protocols: protocols}})
	}
	return nil
}

// service has one procedure that does something.
type service struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	create createFunc
}

// CreateCharge does what it was told to.
func (s service) CreateCharge(ctx context.Context, req createRequest) (createResponse, error) {
	return s.create(ctx, req)
}

// serve adds a service below a path of its own, and returns the callers' clients for it.
func (s *stage) serve(name string, create createFunc, interceptors ...connect.Interceptor) []chargesv1connect.ChargeServiceClient {
	_, handler := chargesv1connect.NewChargeServiceHandler(service{create: create}, connect.WithInterceptors(interceptors...))
	s.mux.Handle("/"+name+"/", http.StripPrefix("/"+name, handler))
	clients := make([]chargesv1connect.ChargeServiceClient, len(s.clients))
	for i, c := range s.clients {
		clients[i] = chargesv1connect.NewChargeServiceClient(c, s.url+"/"+name, connect.WithAcceptCompression("gzip", nil, nil))
	}
	return clients
}

// guard makes a guard that the stage closes.
func (s *stage) guard(on store.Store, opts ...idempotency.Option) (*idempotency.Guard, error) {
	g, err := idempotency.New(on, append(opts, idempotency.WithSingleScope())...)
	if err == nil {
		s.guards = append(s.guards, g)
	}
	return g, err
}

// drain waits for the rollbacks behind answers.
func (s *stage) drain(ctx context.Context) error {
	for _, server := range []map[string]*postgres.Store{s.stores, s.others} {
		for _, keys := range server {
			if err := keys.Drain(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// close ends calls, then guards, then pools.
func (s *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	if s.server != nil {
		errs = append(errs, s.server.Shutdown(ctx))
		if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, fmt.Errorf("serve: %w", err))
		}
	}
	for _, end := range slices.Backward(s.ends) {
		errs = append(errs, end(ctx))
	}
	for _, g := range s.guards {
		errs = append(errs, g.Close(ctx))
	}
	s.pool.Close()
	s.other.Close()
	s.admin.Close()
	return errors.Join(errs...)
}
