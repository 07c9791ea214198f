package target

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Paths of the control calls, and what they take.
const (
	// PathPool takes all connections of the pool "for" a time, and answers when it has given them back.
	PathPool = "/control/pool"
	// PathClock sets the clock wrong by "by", and answers with a Stat.
	PathClock = "/control/clock"
	// PathStat answers with a Stat.
	PathStat = "/control/stat"
)

// Stat is what a target says of itself.
type Stat struct {
	UnixNano int64 `json:"unix_nano"` // what it takes for the time
	Acquired int32 `json:"acquired"`  // connections of the pool that are not idle
}

// control is the kit's own way into a target.
type control struct{ pool *pgxpool.Pool }

func (c *control) handle(mux *http.ServeMux) {
	mux.HandleFunc("POST "+PathPool, duration("for", func(_ http.ResponseWriter, r *http.Request, d time.Duration) {
		c.exhaust(r.Context(), d)
	}))
	mux.HandleFunc("POST "+PathClock, duration("by", func(w http.ResponseWriter, _ *http.Request, d time.Duration) {
		if err := setClock(d); err != nil {
			http.Error(w, err.Error(), http.StatusNotImplemented)
			return
		}
		c.stat(w)
	}))
	mux.HandleFunc("GET "+PathStat, func(w http.ResponseWriter, _ *http.Request) { c.stat(w) })
}

// duration reads a duration from a request's query.
func duration(name string, next func(http.ResponseWriter, *http.Request, time.Duration)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get(name))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		next(w, r, d)
	}
}

func (c *control) stat(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	stat := Stat{UnixNano: time.Now().UnixNano(), Acquired: c.pool.Stat().AcquiredConns()}
	if err := json.NewEncoder(w).Encode(stat); err != nil {
		panic(http.ErrAbortHandler) // the kit sees an answer that is not whole
	}
}

// exhaust holds as many of the pool's connections as it can get until d is over.
func (c *control) exhaust(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var holders sync.WaitGroup
	for range c.pool.Config().MaxConns {
		holders.Go(func() {
			conn, err := c.pool.Acquire(ctx)
			if err != nil {
				return // the database is away, or others hold it: at its limit all the same
			}
			defer conn.Release()
			<-ctx.Done()
		})
	}
	holders.Wait()
}
