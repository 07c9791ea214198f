// Package rig is the world that the kit does harm to: a PostgreSQL, perhaps a PgBouncer, and some targets, each behind a
// proxy of its own.
package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// Config says what world to make.
type Config struct {
	Dir           string // a folder of its own, which other users may enter
	Program       string // the targets' binary
	Transactional bool
	Servers       int
	Bouncer       string // PgBouncer's program; "" has none
	Lease         time.Duration
	Seed          uint64 // of the exec modes
	Break         target.Break
}

const (
	// storeTimeout bounds a target's flights: short, so that a stalled one is given up while the stall lasts.
	storeTimeout = 2 * time.Second
	// ttl is so long that no key expires while a run lasts.
	ttl = 24 * time.Hour
)

// Rig is a world. Close ends it.
type Rig struct {
	Database *database
	Servers  []*Server

	bouncer *bouncer // may be nil
	bank    *bank
}

// Start makes a world.
func Start(ctx context.Context, c Config) (_ *Rig, err error) {
	if err := pglaunch.UnsetClientEnv(); err != nil {
		return nil, err
	}
	r := new(Rig)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close(context.WithoutCancel(ctx)))
		}
	}()
	if r.Database, err = startDatabase(ctx, c.Dir); err != nil {
		return nil, err
	}
	if err := r.makeTables(ctx); err != nil {
		return nil, err
	}
	if c.Bouncer != "" {
		if r.bouncer, err = startBouncer(ctx, c.Bouncer, c.Dir, r.Database); err != nil {
			return nil, err
		}
	}
	if r.bank, err = startBank(ctx); err != nil {
		return nil, err
	}
	for slot := range c.Servers {
		s, err := r.newServer(c, slot)
		if err != nil {
			return nil, err
		}
		r.Servers = append(r.Servers, s)
		if err := s.start(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Rig) makeTables(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, r.Database.url())
	if err != nil {
		return err
	}
	defer pool.Close()
	st, err := postgres.New(pool)
	if err != nil {
		return err
	}
	if err := st.Migrate(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, target.Schema); err != nil {
		return fmt.Errorf("make the ledger: %w", err)
	}
	return nil
}

// newServer makes the place for a target. Their pools have different sizes, they use different ways to the
// database and other exec modes with another seed, and half of them have a call wait for a key that is in progress.
func (r *Rig) newServer(c Config, slot int) (*Server, error) {
	upstream := r.Database.bridge.addr()
	sizes := []int{4, 1, 8, 2}
	modes, way := []string{"cache_statement", "cache_describe", "exec", "simple_protocol", "describe_exec"}, "straight"
	if r.bouncer != nil && slot%2 == 1 {
		// The modes that a transaction-pooling proxy of any version allows.
		upstream, modes, way = r.bouncer.addr, []string{"cache_describe", "exec", "simple_protocol"}, "through PgBouncer"
	}
	first := rand.New(rand.NewPCG(c.Seed, 0)).IntN(len(modes))
	size, mode := sizes[slot%len(sizes)], modes[(first+slot/2)%len(modes)]
	var wait time.Duration
	if slot%4 >= 2 {
		wait, way = c.Lease, way+", waiting"
	}
	p, err := startProxy(strconv.Itoa(slot), upstream)
	if err != nil {
		return nil, err
	}
	query := url.Values{
		"sslmode": {"disable"}, "default_query_exec_mode": {mode}, "pool_max_conns": {strconv.Itoa(size)},
		"connect_timeout": {"5"},
	}.Encode()
	return &Server{
		proxy: p, slot: slot, dir: c.Dir, program: c.Program,
		About: fmt.Sprintf("%s, %s, a pool of %d", way, mode, size),
		config: target.Config{
			Slot:          slot,
			Transactional: c.Transactional,
			DatabaseURL:   fmt.Sprintf("postgres://postgres@%s/%s?%s", p.Listen, databaseName, query),
			Lease:         c.Lease,
			Wait:          wait,
			Timeout:       storeTimeout,
			TTL:           ttl,
			BankURL:       r.bank.url,
			Break:         c.Break,
		},
	}, nil
}

// End is what targets left over when they had stopped.
type End struct {
	Goroutines    map[int]int // by slot, where there are any
	Connections   int         // to the database
	Rewritten     int         // statements that Config.Break changed
	BouncerDeaths int         // how often PgBouncer ended by itself, and was started again
	Faults        []string    // what did not end in order
}

// StopServers ends the targets gracefully, all at once, and PgBouncer after them.
func (r *Rig) StopServers(ctx context.Context) (End, error) {
	end := End{Goroutines: make(map[int]int)}
	var mu sync.Mutex
	var stopping sync.WaitGroup
	for _, s := range r.Servers {
		stopping.Go(func() {
			stopped, err := s.stop()
			mu.Lock()
			defer mu.Unlock()
			end.add(s, stopped, err)
		})
	}
	stopping.Wait()
	if r.bouncer != nil {
		var err error
		if end.BouncerDeaths, err = r.bouncer.close(); err != nil {
			return end, err
		}
		r.bouncer = nil
	}
	connections, err := r.connections(ctx)
	end.Connections = connections
	return end, err
}

// add adds what a server left over.
func (e *End) add(s *Server, stopped target.Stopped, err error) {
	if err != nil {
		e.Faults = append(e.Faults, err.Error())
	}
	e.Faults = append(e.Faults, s.deaths...)
	e.Rewritten += stopped.Rewritten
	if stopped.Goroutines > 0 {
		e.Goroutines[s.slot] = stopped.Goroutines
	}
}

// connections returns how many connections the database still has, beside the kit's own, once they had time to end.
func (r *Rig) connections(ctx context.Context) (n int, err error) {
	for deadline := time.Now().Add(5 * time.Second); ; {
		err := r.Database.withConn(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `select count(*) from pg_stat_activity
				where backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(&n)
		})
		if err != nil || n == 0 || time.Now().After(deadline) {
			return n, err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Journals returns the files that the targets wrote.
func (r *Rig) Journals() []string {
	var all []string
	for _, s := range r.Servers {
		all = append(all, s.journals...)
	}
	return all
}

// Captured returns what the bank was told, by the client's key: the derived keys that came for it.
func (r *Rig) Captured() map[string]map[string]bool { return r.bank.captured() }

// Close ends what is left of the world.
func (r *Rig) Close(ctx context.Context) error {
	var errs []error
	for _, s := range r.Servers {
		if s.process != nil {
			errs = append(errs, s.process.kill())
		}
		s.Stop()
	}
	if r.bouncer != nil {
		_, err := r.bouncer.close()
		errs = append(errs, err)
	}
	if r.bank != nil {
		errs = append(errs, r.bank.close())
	}
	if r.Database != nil {
		ctx, cancel := context.WithTimeout(ctx, databaseLimit)
		defer cancel()
		errs = append(errs, r.Database.stop(ctx))
	}
	return errors.Join(errs...)
}

// MakeDir makes a folder for a rig, which the database's user may enter.
func MakeDir(in, name string) (string, error) {
	dir := filepath.Join(in, name)
	if err := os.Mkdir(dir, 0o711); err != nil { //nolint:gosec // the database may run as another user
		return "", err
	}
	return dir, os.Chmod(dir, 0o711) //nolint:gosec // whatever the umask is
}
