package idempotency_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestPassesBy(t *testing.T) {
	t.Parallel()
	keyed := charge("k", 1)
	keyless := charge("", 1)
	keyless.Keys = nil
	emptyKey := charge("", 1)
	reading, readingUnkeyed := keyed, keyless
	reading.NoSideEffects, readingUnkeyed.NoSideEffects = true, true

	required := idempotency.WithKeyRequired()
	policy := func(change func(*idempotency.Policy)) idempotency.Option {
		return idempotency.WithPolicy(func(_ idempotency.Call, p idempotency.Policy) idempotency.Policy {
			change(&p)
			return p
		})
	}
	requires := policy(func(p *idempotency.Policy) { p.KeyRequired = true })
	requiresNot := policy(func(p *idempotency.Policy) { p.KeyRequired = false })
	off := policy(func(p *idempotency.Policy) { p.Off = true })
	for name, c := range map[string]struct {
		call idempotency.Call
		opts []idempotency.Option
		want bool
	}{
		"a key":                                {keyed, nil, false},
		"no key":                               {keyless, nil, true},
		"an empty key":                         {emptyKey, nil, false},
		"no key, required":                     {keyless, []idempotency.Option{required}, false},
		"no key, required by policy":           {keyless, []idempotency.Option{requires}, false},
		"no key, not required by policy":       {keyless, []idempotency.Option{required, requiresNot}, true},
		"a key, off":                           {keyed, []idempotency.Option{off}, true},
		"no key, required, off":                {keyless, []idempotency.Option{required, off}, true},
		"a key, no side effects":               {reading, nil, true},
		"no key, required, no side effects":    {readingUnkeyed, []idempotency.Option{required}, true},
		"a key, a policy that changes nothing": {keyed, []idempotency.Option{policy(func(*idempotency.Policy) {})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), c.opts...)
			if got := r.PassesBy(c.call); got != c.want {
				t.Fatalf("PassesBy = %v, want %v", got, c.want)
			}
			if !c.want {
				return
			}
			for range 2 {
				requirePassesBy(t, r, c.call)
			}
		})
	}
}

// requirePassesBy fails t unless Do does nothing but run the call.
func requirePassesBy(t *testing.T, r *rig, c idempotency.Call) {
	t.Helper()
	type ctxKey struct{}
	want := failed(code.Code_NOT_FOUND)
	ran := false
	res := r.do(context.WithValue(t.Context(), ctxKey{}, 1), c, func(ctx context.Context) idempotency.Reply {
		ran = true
		if _, ok := idempotency.FromContext(ctx); ok || ctx.Value(ctxKey{}) == nil {
			t.Error("the handler's context is not the caller's own")
		}
		idempotency.KeepWrites(ctx) // does nothing
		return want
	})
	if !ran || res.err != nil || res.replayed || res.reply.Error != want.Error {
		t.Errorf("ran = %v, got %v, replayed = %v, %v; want the handler's own reply", ran, res.reply, res.replayed, res.err)
	}
	if asked, told := r.store.asked(), r.told(); len(asked) != 0 || len(told) != 0 {
		t.Errorf("the store was asked %v, the observer told %v", asked, told)
	}
}

func TestWithPolicyByProcedure(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithTTL(time.Hour), idempotency.WithPolicy(
		func(c idempotency.Call, p idempotency.Policy) idempotency.Policy {
			if p.TTL != time.Hour || p.Lease != idempotency.DefaultLease || p.Off || p.KeyRequired || p.NoTakeOver {
				t.Errorf("given %+v, want what the options say", p)
			}
			if c.Procedure == refundCharge {
				p.KeyRequired, p.TTL, p.Lease = true, 2*time.Minute, time.Minute
			}
			return p
		}))
	refund := charge("refund", 1)
	refund.Procedure = refundCharge
	r.mustRun(t, refund, created("ch_1"))
	r.mustRun(t, charge("charge", 1), created("ch_2"))
	asked := r.store.asked()
	if got := asked[0]; got.TTL != 2*time.Minute || got.Lease != time.Minute {
		t.Errorf("the refund is claimed for %v with a lease of %v", got.TTL, got.Lease)
	}
	if got := asked[1]; got.TTL != time.Hour || got.Lease != idempotency.DefaultLease {
		t.Errorf("the charge is claimed for %v with a lease of %v", got.TTL, got.Lease)
	}
	refund.Keys = nil
	r.mustRefuse(t, refund, code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyRequired)
}

func TestAPolicyThatIsNotValidRefusesTheCall(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*idempotency.Policy){
		"the zero policy":  func(p *idempotency.Policy) { *p = idempotency.Policy{} },
		"no lease":         func(p *idempotency.Policy) { p.Lease = 0 },
		"under two leases": func(p *idempotency.Policy) { p.TTL = 2*p.Lease - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), idempotency.WithPolicy(func(_ idempotency.Call, p idempotency.Policy) idempotency.Policy {
				change(&p)
				return p
			}))
			e := r.refusal(t, charge("k", 1), code.Code_INTERNAL, idempotency.ReasonMisconfigured)
			if e.Cause == nil {
				t.Error("the refusal does not say why")
			}
			if n := len(r.store.asked()); n != 0 {
				t.Errorf("the store was asked %d times", n)
			}
			if o := r.last(t); o.Outcome != idempotency.Failed {
				t.Errorf("observed %v, want failed", o.Outcome)
			}
		})
	}
}

// A policy may be read from configuration that changes at any moment.
func TestAPolicyThatChangesDuringACallDoesNotMakeAnEmptyKey(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	r := newRig(t, leased(), idempotency.WithPolicy(func(_ idempotency.Call, p idempotency.Policy) idempotency.Policy {
		p.KeyRequired = asked.Add(1)%2 == 1
		return p
	}))
	c := charge("", 1)
	c.Keys = nil
	r.mustRefuse(t, c, code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyRequired)
	res := r.do(t.Context(), c, (&handler{reply: created("ch_1")}).run)
	if res.err != nil || res.replayed {
		t.Errorf("replayed = %v, %v; want a run", res.replayed, res.err)
	}
	if n := len(r.store.asked()); n != 0 {
		t.Errorf("a call without a key asked the store %d times", n)
	}
}
