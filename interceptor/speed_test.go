package interceptor_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

const (
	callers       = 8
	callsPerRound = 60 // of each caller
)

// BenchmarkAgainstByHand compares guarded calls with the same work done by hand, over HTTP, on one database as configured
// by default, fsync on. Each iteration is a round in which every variant takes its turn, so that a noisy machine hits all
// alike; what is reported is the median of the rounds' ratios of throughput, and the calls per second of each variant.
func BenchmarkAgainstByHand(b *testing.B) {
	vs := variants(b)
	names := slices.Sorted(maps.Keys(vs))
	for _, name := range names { // warm
		vs[name].round(b)
	}
	perSecond := make(map[string][]float64)
	for b.Loop() {
		for _, name := range names {
			perSecond[name] = append(perSecond[name], vs[name].round(b))
		}
	}
	for _, name := range names {
		b.ReportMetric(median(perSecond[name]), name+"_calls/s")
	}
	for ratio, of := range map[string][2]string{
		"transactional/bare": {"transactional", "bare"}, "transactional/hand_4_flights": {"transactional", "hand_4_flights"},
		"transactional/hand_2_flights": {"transactional", "hand_2_flights"}, "leased/hand_3_transactions": {"leased", "hand_3_transactions"},
		"replay_leased/select": {"replay_leased", "select"}, "replay_transactional/select": {"replay_transactional", "select"},
	} {
		rounds := make([]float64, len(perSecond[of[0]]))
		for i := range rounds {
			rounds[i] = perSecond[of[0]][i] / perSecond[of[1]][i]
		}
		b.ReportMetric(median(rounds), ratio)
	}
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// variant is a server with its callers' clients.
type variant struct {
	clients [callers]chargesv1connect.ChargeServiceClient
	key     func() string
}

// round makes the callers' calls, and returns how many went through in a second.
func (v *variant) round(b *testing.B) float64 {
	b.Helper()
	var running sync.WaitGroup
	start := time.Now()
	for _, client := range v.clients {
		running.Go(func() {
			for range callsPerRound {
				if _, err := client.CreateCharge(context.Background(), charge(v.key(), "a charge of the benchmark's")); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	return callers * callsPerRound / time.Since(start).Seconds()
}

func variants(b *testing.B) map[string]*variant {
	b.Helper()
	server := pgtest.Server(b, nil)
	hand := newByHand(b, pgtest.Pool(b, server.URL("postgres"), func(c *pgxpool.Config) { c.MaxConns = callers }))
	var last atomic.Int64
	fresh := func() string { return "key-" + strconv.FormatInt(last.Add(1), 10) }
	vs := make(map[string]*variant)
	add := func(name string, create createFunc, key func() string, interceptors ...connect.Interceptor) {
		_, handler := chargesv1connect.NewChargeServiceHandler(service{create: create}, connect.WithInterceptors(interceptors...))
		s := serve(b, handler)
		v := &variant{key: key}
		for i := range v.clients {
			v.clients[i] = s.client(b, "connect proto")
		}
		vs[name] = v
	}
	add("bare", hand.bare, fresh)
	add("hand_4_flights", hand.fourFlights, fresh)
	add("hand_2_flights", hand.twoFlights, fresh)
	add("hand_3_transactions", hand.threeTransactions, fresh)
	add("select", hand.selectByKey, func() string { return "stored" })
	for mode, makeStore := range map[string]func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error){
		"leased": postgres.New, "transactional": postgres.NewTransactional,
	} {
		s, err := makeStore(hand.pool)
		if err != nil {
			b.Fatal(err)
		}
		g := backend{store: s}.guard(b)
		add(mode, hand.guarded, fresh, interceptor.New(g))
		once := func() string { return "replayed-" + mode }
		add("replay_"+mode, hand.guarded, once, interceptor.New(g))
		if _, err := vs["replay_"+mode].clients[0].CreateCharge(b.Context(), charge(once(), "a charge of the benchmark's")); err != nil {
			b.Fatal(err)
		}
	}
	return vs
}

// byHand has handlers that do their work without a guard.
type byHand struct{ pool *pgxpool.Pool }

func newByHand(b *testing.B, pool *pgxpool.Pool) byHand {
	b.Helper()
	h := byHand{pool}
	s, err := postgres.New(pool)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), "create table charges (id text primary key, amount bigint not null, description text not null)"); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), insertKey, "stored", "completed", "OK", "{}", encoded(b, "ch_stored"), nil); err != nil {
		b.Fatal(err)
	}
	return h
}

func encoded(b *testing.B, id string) []byte {
	b.Helper()
	bytes, err := proto.Marshal(created(id).Msg)
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

const (
	insertCharge = "insert into charges (id, amount, description) values ($1, $2, $3)"
	insertKey    = `insert into idempotency_keys (scope, key, procedure, state, token, attempt, request_hash, code, response_body,
		response_bytes, lease_until, expires_at)
		values ('', $1, '/charges.v1.ChargeService/CreateCharge', $2, '3c5f2c52-6ad5-43a8-9d7e-0f8f2f1d7d11', 1,
		'v1:sha256:0000000000000000000000000000000000000000000000000000000000000000', $3, $4::jsonb, $5, $6, now() + interval '1 day')`
	updateKey = `update idempotency_keys set state = 'completed', code = 'OK', response_body = $2::jsonb, response_bytes = $3,
		lease_until = null where key = $1 and scope = ''`
	selectKey = "select response_bytes from idempotency_keys where scope = '' and key = $1"
)

// outcome is a charge with its reply in both forms.
func outcome(req createRequest) (args []any, body string, bytes []byte, res createResponse, err error) {
	id := "ch_" + key(req)
	res = created(id)
	bytes, err = proto.Marshal(res.Msg)
	return []any{id, req.Msg.Amount, req.Msg.Description}, `{"charge":{"id":"` + id + `"}}`, bytes, res, err
}

func key(req createRequest) string { return req.Header().Get("Idempotency-Key") }

// bare has its own transaction, and no key.
func (h byHand) bare(ctx context.Context, req createRequest) (createResponse, error) {
	args, _, _, res, err := outcome(req)
	if err != nil {
		return nil, err
	}
	return res, pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertCharge, args...)
		return err
	})
}

// fourFlights inserts charge and finished key in one transaction, as one writes it.
func (h byHand) fourFlights(ctx context.Context, req createRequest) (createResponse, error) {
	args, body, bytes, res, err := outcome(req)
	if err != nil {
		return nil, err
	}
	return res, pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertCharge, args...); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertKey, key(req), "completed", "OK", body, bytes, nil)
		return err
	})
}

// twoFlights does the same with BEGIN and COMMIT in the flights of the inserts.
func (h byHand) twoFlights(ctx context.Context, req createRequest) (createResponse, error) {
	args, body, bytes, res, err := outcome(req)
	if err != nil {
		return nil, err
	}
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	begin, end := new(pgx.Batch), new(pgx.Batch)
	begin.BeginTx(pgx.TxOptions{})
	begin.Queue(insertCharge, args...)
	if err := conn.SendBatch(ctx, begin).Close(); err != nil {
		return nil, err
	}
	end.Queue(insertKey, key(req), "completed", "OK", body, bytes, nil)
	end.Queue("commit")
	return res, conn.SendBatch(ctx, end).Close()
}

// threeTransactions is the plain pattern: claim, work, store the reply.
func (h byHand) threeTransactions(ctx context.Context, req createRequest) (createResponse, error) {
	args, body, bytes, res, err := outcome(req)
	if err != nil {
		return nil, err
	}
	if _, err := h.pool.Exec(ctx, insertKey, key(req), "in_progress", nil, nil, nil, time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if _, err := h.pool.Exec(ctx, insertCharge, args...); err != nil {
		return nil, err
	}
	_, err = h.pool.Exec(ctx, updateKey, key(req), body, bytes)
	return res, err
}

// selectByKey answers with what is stored for a key.
func (h byHand) selectByKey(ctx context.Context, req createRequest) (createResponse, error) {
	var bytes []byte
	if err := h.pool.QueryRow(ctx, selectKey, key(req)).Scan(&bytes); err != nil {
		return nil, err
	}
	res := created("")
	return res, proto.Unmarshal(bytes, res.Msg)
}

// guarded does the work alone: the key is the guard's.
func (h byHand) guarded(ctx context.Context, req createRequest) (createResponse, error) {
	args, _, _, res, err := outcome(req)
	if err != nil {
		return nil, err
	}
	_, err = postgres.Querier(ctx, h.pool).Exec(ctx, insertCharge, args...)
	return res, err
}

// BenchmarkWithoutKey compares a call without a key with the same call without an interceptor.
func BenchmarkWithoutKey(b *testing.B) {
	ctx := b.Context()
	next := connect.UnaryFunc(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return nil, nil })
	g := backend{store: memory.New()}.guard(b)
	for name, call := range map[string]connect.UnaryFunc{"bare": next, "guarded": interceptor.New(g).WrapUnary(next)} {
		b.Run(name, func(b *testing.B) {
			req := charge("", "")
			req.Header()["Content-Type"] = []string{"application/proto"}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = call(ctx, req)
			}
		})
	}
}
