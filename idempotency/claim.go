package idempotency

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// claimRounds bounds how often a claim goes back to the store because the row that it saw was gone, or was another's, when
// it came to take it over.
const claimRounds = 3

// claim tries to win the key. The attempt is nil where it did not; k.found says what stands in the way.
func (g *Guard) claim(ctx context.Context, k *keyed) (attempt store.Attempt, err error) {
	k.found, attempt, err = g.store.Claim(ctx, k.claim())
	for round := 1; round < claimRounds && err == nil && attempt == nil; round++ {
		switch {
		case k.found.State == store.Absent:
			k.found, attempt, err = g.store.Claim(ctx, k.claim())
		case k.found.Expired:
			k.found, attempt, err = g.store.TakeOver(ctx, k.claim(), k.found.Token)
		case k.found.LeaseOver() && !k.policy.NoTakeOver && g.sameRequest(k, k.found.RequestHash):
			if k.found, attempt, err = g.store.TakeOver(ctx, k.claim(), k.found.Token); attempt != nil {
				k.attempt = k.found.Attempt
				g.observe(ctx, k, Event{Outcome: TakenOver})
			}
		default:
			return nil, nil
		}
	}
	if err != nil {
		return nil, callError(ctx, err)
	}
	if attempt != nil {
		k.attempt = k.found.Attempt
	}
	return attempt, nil
}

// claim makes the claim that is sent, with a token of its own.
func (k *keyed) claim() store.Claim {
	k.sent, k.token = time.Now(), store.NewToken()
	return store.Claim{
		ID:          k.id,
		Token:       k.token,
		RequestHash: k.fingerprint,
		Procedure:   k.Procedure,
		TTL:         k.policy.TTL,
		Lease:       k.policy.Lease,
	}
}

// callError says what the caller is told when the store fails before the run: its own leaving, or the store's.
func callError(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return &Error{Code: code.Code_CANCELLED, Message: "idempotency: the call was cancelled before it ran", Cause: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded) && deadlineOver(ctx):
		return &Error{Code: code.Code_DEADLINE_EXCEEDED, Message: "idempotency: the call's deadline passed before it ran", Cause: err}
	}
	return storeUnavailable(err)
}

// deadlineOver reports whether ctx has next to no time left, even if its timer has not fired.
func deadlineOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < time.Millisecond
}

// answer ends a call that did not win its key, by what was found in its place. The order of the rules is the contract:
// another request is refused before anything of the row is given away.
func (g *Guard) answer(ctx context.Context, k *keyed) (Reply, bool, error) {
	found := &k.found
	switch {
	case found.State == store.Absent || found.Expired || found.OutOfSight():
		return g.refuse(ctx, k, InProgress, inProgress(min(retryDelay, k.policy.Lease)))
	case !g.sameRequest(k, found.RequestHash):
		return g.refuse(ctx, k, Reused, refusal(code.Code_FAILED_PRECONDITION, ReasonKeyReused, nil,
			"this key was used with another request; a new operation needs a new key"))
	case found.State == store.NotKept:
		return g.refuse(ctx, k, NotKept, refusal(code.Code_FAILED_PRECONDITION, ReasonReplyNotKept, nil,
			"this call has run, and its reply was not kept; it will not run again"))
	case found.State == store.Completed:
		return g.replay(ctx, k)
	case found.LeaseOver() && k.policy.NoTakeOver:
		return g.refuse(ctx, k, Failed, refusal(code.Code_FAILED_PRECONDITION, ReasonOutcomeUnknown, nil,
			"an earlier call with this key never ended, and what it did is not known; it has to be looked into"))
	default:
		return g.refuse(ctx, k, InProgress, inProgress(min(retryDelay, found.LeaseLeft)))
	}
}

func inProgress(delay time.Duration) *Error {
	return refusal(code.Code_ABORTED, ReasonKeyInProgress, nil,
		"the first call with this key is still running; retry with the same key").retryIn(delay)
}
