package replay

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// tb is what a test and a check of rapid's have in common.
type tb interface {
	rapid.TB
	Context() context.Context
}

// answer is what a handler says, the same each time that it is asked.
type answer struct {
	message         proto.Message // where err is nil
	err             func() error
	header, trailer http.Header // on the response, so not beside an error
	// By the simple API, on the call info.
	infoHeader, infoTrailer http.Header
}

// path is the procedure that answers with the answer's message, or with any where there is none.
func (a answer) path() string {
	if a.message == nil {
		return path((*testv1.Proto3Message)(nil))
	}
	return path(a.message)
}

// newReply makes an empty message of the answer's type; nil where there is none.
func (a answer) newReply() proto.Message {
	if a.message == nil {
		return nil
	}
	return a.message.ProtoReflect().New().Interface()
}

// path is the procedure that answers with messages of m's type.
func path(m proto.Message) string {
	return "/replay.test/" + string(m.ProtoReflect().Descriptor().FullName())
}

var modes = []string{"leased", "transactional"}

// table is a database with the store's table in it, and one for what handlers do. Both modes share them.
type table struct {
	pool   *pgxpool.Pool
	stores map[string]*postgres.Store // by mode
}

func newTable(t *testing.T) table {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 8 })
	leased, err := postgres.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	transactional, err := postgres.NewTransactional(pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := leased.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "create table effects (key text not null)"); err != nil {
		t.Fatal(err)
	}
	return table{pool: pool, stores: map[string]*postgres.Store{"leased": leased, "transactional": transactional}}
}

// exec changes the table behind the guard's back, in one row unless the statement fails the test.
func (t table) exec(tt tb, sql string, args ...any) {
	tt.Helper()
	tag, err := t.pool.Exec(tt.Context(), sql, args...)
	if err != nil || tag.RowsAffected() != 1 {
		tt.Fatalf("%s: %v, %v; want one row changed", sql, tag, err)
	}
}

// rig is a server over a table. Its handlers give the answers that were registered, and remember under which keys they ran.
type rig struct {
	table
	url     string
	mux     *http.ServeMux
	option  connect.HandlerOption // the guard's interceptor, and one outside it
	clients map[bool]*http.Client // by whether they speak HTTP/1.1
	log     *safeBuffer

	mu      sync.Mutex
	answers map[string]answer
	name    string // in its keys, since rigs share tables
	keys    int
	runs    map[string]int
}

// newRig serves every type of reply. Every reply is kept, since what is kept is not this property's to say.
func newRig(t *testing.T, on table, mode string, opts ...idempotency.Option) *rig {
	t.Helper()
	r := &rig{table: on, name: rand.Text(), mux: http.NewServeMux(), log: new(safeBuffer), answers: make(map[string]answer), runs: make(map[string]int)}
	g, err := idempotency.New(on.stores[mode], append([]idempotency.Option{
		idempotency.WithSingleScope(),
		idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true }),
		idempotency.WithMaxReplySize(1 << 24),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(r.log, nil))),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close the guard: %v", err)
		}
	})
	r.option = connect.WithInterceptors(connect.UnaryInterceptorFunc(outer), interceptor.New(g))
	handleAll(r)

	server := httptest.NewUnstartedServer(r.mux)
	server.Config.Protocols = httpProtocols(true, true)
	server.Config.ErrorLog = log.New(t.Output(), "", 0) // what HTTP does not let a handler send
	server.Start()
	t.Cleanup(server.Close)
	r.url = server.URL
	r.clients = map[bool]*http.Client{true: newClient(t, httpProtocols(true, false)), false: newClient(t, httpProtocols(false, true))}
	return r
}

// outer adds to every answer, and so to replays and refusals too, some of it under names that handlers use as well.
func outer(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		info, _ := connect.CallInfoForHandlerContext(ctx)
		for _, into := range []http.Header{info.ResponseHeader(), info.ResponseTrailer()} {
			into.Add("X-Several", "by an outer interceptor")
			into.Add("X-Outer", "once")
		}
		return next(ctx, req)
	}
}

func httpProtocols(http1, http2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(http2)
	return p
}

func newClient(t *testing.T, p *http.Protocols) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: p, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// message is a message by its generated type.
type message[T any] interface {
	*T
	proto.Message
}

// handle serves the procedure whose replies are of the type T, at the path of the type.
func handle[T any, M message[T]](r *rig) {
	handleAt[T, M](r, path(M(new(T))), nil)
}

func handleAt[T any, M message[T]](r *rig, path string, schema protoreflect.MethodDescriptor) {
	serve := func(ctx context.Context, req *connect.Request[testv1.CallRequest]) (*connect.Response[T], error) {
		a, err := r.run(ctx, req.Msg.GetAnswer())
		if err != nil {
			return nil, err
		}
		info, _ := connect.CallInfoForHandlerContext(ctx)
		add(info.ResponseHeader(), a.infoHeader)
		add(info.ResponseTrailer(), a.infoTrailer)
		if a.err != nil {
			return nil, a.err()
		}
		reply, ok := a.message.(M)
		if !ok {
			return nil, fmt.Errorf("the answer %s is a %T", req.Msg.GetAnswer(), a.message)
		}
		res := connect.NewResponse((*T)(reply))
		add(res.Header(), a.header)
		add(res.Trailer(), a.trailer)
		return res, nil
	}
	options := []connect.HandlerOption{r.option}
	if schema != nil {
		options = append(options, connect.WithSchema(schema))
	}
	r.mux.Handle(path, connect.NewUnaryHandler(path, serve, options...))
}

// add puts values into a header under the names as they are spelt.
func add(into, values http.Header) {
	for name, v := range values {
		into[name] = append(into[name], v...)
	}
}

// run counts a run under a key, and does what must be done once.
func (r *rig) run(ctx context.Context, name string) (answer, error) {
	r.mu.Lock()
	a, known := r.answers[name]
	info, guarded := idempotency.FromContext(ctx)
	if guarded {
		r.runs[info.Key]++
	}
	r.mu.Unlock()
	if !known {
		return answer{}, fmt.Errorf("there is no answer %q", name)
	}
	if guarded {
		if _, err := postgres.Querier(ctx, r.pool).Exec(ctx, "insert into effects values ($1)", info.Key); err != nil {
			return answer{}, err
		}
	}
	return a, nil
}

// register makes an answer known, and returns the name by which a request asks for it.
func (r *rig) register(a answer) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("answer-%d", len(r.answers)+1)
	r.answers[name] = a
	return name
}

// newKey makes a key that was not used before.
func (r *rig) newKey() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys++
	return fmt.Sprintf("key-%s-%d", r.name, r.keys)
}

// ran is how often a handler ran under a key.
func (r *rig) ran(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[key]
}

// effects is how often what a handler does under a key was done, for good.
func (t table) effects(tt tb, key string) (n int) {
	tt.Helper()
	if err := t.pool.QueryRow(tt.Context(), "select count(*) from effects where key = $1", key).Scan(&n); err != nil {
		tt.Fatal(err)
	}
	return n
}

// safeBuffer is a log that is written and read concurrently.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// take returns what was written, and forgets it.
func (s *safeBuffer) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.b.Reset()
	return s.b.String()
}
