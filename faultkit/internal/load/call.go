package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// outcome is what one call came to: an answer, a refusal as reused, something that must not be, or, where all are zero,
// something to try again.
type outcome struct {
	answer *Answer
	reused bool
	wrong  string
}

// call calls once, on any server and protocol, with more or less patience.
func (l *Load) call(ctx context.Context, r Request) outcome {
	l.calls.Add(1)
	patience := l.patience // at most a lease: so that retries meet an attempt whose server is paused
	if rand.IntN(5) == 0 {
		patience = rand.N(300 * time.Millisecond) // so that some clients leave early
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := connect.NewRequest(&chargesv1.CreateChargeRequest{
		Amount: r.Amount, Currency: "USD", CardToken: r.Card, Description: r.Key,
	})
	req.Header().Set(idempotency.DefaultHeader, r.Key)
	res, err := l.client().CreateCharge(ctx, req)
	if err == nil {
		l.count("answered")
		charge := res.Msg.GetCharge()
		if charge.GetAmount() != r.Amount {
			return outcome{wrong: fmt.Sprintf("a charge of %d was answered with one of %d", r.Amount, charge.GetAmount())}
		}
		return outcome{answer: &Answer{
			Charge: charge.GetId(), Replayed: res.Header().Get(idempotency.HeaderReplayed) == "true",
		}}
	}
	refused, ok := errors.AsType[*connect.Error](err)
	if !ok {
		l.count("failed")
		return outcome{}
	}
	return l.refusal(refused)
}

// refusal sorts an error: the handler's own answer, a refusal of the guard's, or a failure on the way.
func (l *Load) refusal(err *connect.Error) outcome {
	reason := reasonOf(err)
	switch {
	case reason == "" && err.Code() == connect.CodeFailedPrecondition && strings.HasPrefix(err.Message(), "ch_"):
		l.count("declined")
		return outcome{answer: &Answer{
			Charge: err.Message(), Declined: true, Replayed: err.Meta().Get(idempotency.HeaderReplayed) == "true",
		}}
	case reason == "" && err.Code() == connect.CodeDataLoss:
		return outcome{wrong: err.Error()}
	case reason == "":
		l.count(err.Code().String())
		return outcome{}
	}
	l.count(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(reason, "IDEMPOTENCY_"), "_", " ")))
	switch reason {
	case idempotency.ReasonKeyInProgress, idempotency.ReasonStoreUnavailable, idempotency.ReasonTxConflict:
		return outcome{}
	case idempotency.ReasonKeyReused:
		return outcome{reused: true, wrong: "the same request was refused as reused"}
	default:
		return outcome{wrong: "refused as " + reason + ": " + err.Error()}
	}
}

// reasonOf returns the guard's reason for a refusal, "" where it is none.
func reasonOf(err *connect.Error) string {
	for _, d := range err.Details() {
		value, valueErr := d.Value()
		if valueErr != nil {
			continue
		}
		if info, ok := value.(*errdetails.ErrorInfo); ok && info.GetDomain() == idempotency.Domain {
			return info.GetReason()
		}
	}
	return ""
}

func (l *Load) count(how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.Attempts[how]++
}
