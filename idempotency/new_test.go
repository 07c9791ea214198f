package idempotency_test

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	single := idempotency.WithSingleScope()
	for name, c := range map[string]struct {
		store store.Store
		opts  []idempotency.Option
		want  string
	}{
		"no scope":            {memory.New(), nil, "scope"},
		"a nil scope":         {memory.New(), []idempotency.Option{idempotency.WithScope(nil)}, "scope"},
		"no store":            {nil, []idempotency.Option{single}, "store"},
		"a lease of zero":     {memory.New(), []idempotency.Option{single, idempotency.WithLease(0)}, "lease"},
		"a negative lease":    {memory.New(), []idempotency.Option{single, idempotency.WithLease(-time.Second)}, "lease"},
		"a lease under 1ms":   {memory.New(), []idempotency.Option{single, idempotency.WithLease(time.Millisecond - 1)}, "lease"},
		"a TTL of zero":       {memory.New(), []idempotency.Option{single, idempotency.WithTTL(0)}, "TTL"},
		"under two leases":    {memory.New(), []idempotency.Option{single, idempotency.WithTTL(2*idempotency.DefaultLease - 1)}, "TTL"},
		"a lease for ever":    {memory.New(), []idempotency.Option{single, idempotency.WithLease(math.MaxInt64)}, "TTL"},
		"a size under zero":   {memory.New(), []idempotency.Option{single, idempotency.WithMaxReplySize(-1)}, "-1 bytes"},
		"an empty header":     {memory.New(), []idempotency.Option{single, idempotency.WithHeader("")}, "header"},
		"a nil keep":          {memory.New(), []idempotency.Option{single, idempotency.WithKeep(nil)}, "WithKeep"},
		"a nil observer":      {memory.New(), []idempotency.Option{single, idempotency.WithObserver(nil)}, "WithObserver"},
		"the scope unsettled": {memory.New(), []idempotency.Option{single, idempotency.WithScope(nil)}, "scope"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := idempotency.New(c.store, c.opts...)
			if err == nil || g != nil {
				t.Fatalf("New = %v, %v; want an error alone", g, err)
			}
			if !strings.HasPrefix(err.Error(), "idempotency: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %q, want it to be ours and to say %q", err, c.want)
			}
		})
	}
}

func TestNewTellsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := idempotency.New(nil, idempotency.WithTTL(0), idempotency.WithMaxReplySize(-1), idempotency.WithHeader(""))
	if err == nil {
		t.Fatal("New succeeded")
	}
	for _, want := range []string{"no store", "scope", "TTL", "-1 bytes", "header"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error says nothing of %q: %q", want, err)
		}
	}
}

func TestNewTakesTheLeastThatIsValid(t *testing.T) {
	t.Parallel()
	_, err := idempotency.New(memory.New(),
		idempotency.WithScope(func(context.Context, idempotency.Call) (string, error) { return "", nil }),
		idempotency.WithLease(time.Millisecond), idempotency.WithTTL(2*time.Millisecond), idempotency.WithMaxReplySize(0),
		idempotency.WithLogger(nil), idempotency.WithPolicy(nil))
	if err != nil {
		t.Error(err)
	}
}

func TestHeaderNamesTheMetadataOfTheKey(t *testing.T) {
	t.Parallel()
	if got := newRig(t, leased()).Header(); got != "idempotency-key" {
		t.Errorf("the default is %q", got)
	}
	if got := newRig(t, leased(), idempotency.WithHeader("x-request-id")).Header(); got != "x-request-id" {
		t.Errorf("WithHeader made it %q", got)
	}
}

func TestTheClaimSaysWhatTheOptionsSay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts       []idempotency.Option
		ttl, lease time.Duration
	}{
		"defaults": {nil, 24 * time.Hour, 30 * time.Second},
		"set":      {[]idempotency.Option{idempotency.WithTTL(time.Hour), idempotency.WithLease(time.Minute)}, time.Hour, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), c.opts...)
			r.mustRun(t, charge("k", 1), created("ch_1"))
			got := r.store.asked()[0]
			if got.TTL != c.ttl || got.Lease != c.lease {
				t.Errorf("claimed for %v with a lease of %v, want %v and %v", got.TTL, got.Lease, c.ttl, c.lease)
			}
			if got.ID != (store.ID{Key: "k"}) || got.Procedure != createCharge || got.Token.IsZero() {
				t.Errorf("claimed %+v", got)
			}
		})
	}
}

// Not parallel: it changes the process's logger.
func TestWithoutALoggerTheDefaultOneIsUsed(t *testing.T) {
	var logs bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	for name, opts := range map[string][]idempotency.Option{"none": nil, "nil": {idempotency.WithLogger(nil)}} {
		logs.Reset()
		g, err := idempotency.New(holding(store.Completed, nil), append(opts, idempotency.WithSingleScope())...)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.Do(t.Context(), charge("k", 1), neverRuns(t)); err == nil {
			t.Errorf("%s: an unreadable reply was replayed", name)
		}
		if !strings.Contains(logs.String(), createCharge) {
			t.Errorf("%s: the default logger was told %q", name, logs.String())
		}
	}
}
