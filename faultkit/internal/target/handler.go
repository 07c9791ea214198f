package target

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// Card tokens: how a call ends.
const (
	CardOK           = "tok_ok"
	CardDeclined     = "tok_declined"      // kept, and the charge is undone
	CardDeclinedKept = "tok_declined_kept" // kept, and so is the charge
	CardBroken       = "tok_broken"        // a statement fails, and the error is kept
	CardFlaky        = "tok_flaky"         // Unavailable half of the time: released
	CardPanic        = "tok_panic"         // panics half of the time: released
)

// Declines reports whether the answer to a card is an error, one that is kept.
func Declines(card string) bool {
	return card == CardDeclined || card == CardDeclinedKept || card == CardBroken
}

// Schema makes the ledger, and what Break needs.
const Schema = `
create table faultkit_charges (
  id       text        primary key,
  key      text        not null,
  token    text        not null,
  attempt  integer     not null,
  slot     integer     not null,
  added_at timestamptz not null default clock_timestamp()
);
create index on faultkit_charges (key);
create function ` + NoLock + `(bigint) returns boolean language sql volatile as 'select true'`

const addChargeSQL = `insert into faultkit_charges (id, key, token, attempt, slot) values ($1, $2, $3, $4, $5)`

// handler is a ChargeService whose charges are slow, fail and call another system.
type handler struct {
	chargesv1connect.UnimplementedChargeServiceHandler

	pool  *pgxpool.Pool
	log   *journal.Writer
	bank  *bank
	slot  int
	lease time.Duration
}

// CreateCharge writes the charge down, has the bank capture it, and ends as the card says. The charge's id is the run's
// own, so that an answer tells which run it came from.
func (h *handler) CreateCharge(
	ctx context.Context, req *connect.Request[chargesv1.CreateChargeRequest],
) (*connect.Response[chargesv1.CreateChargeResponse], error) {
	info, guarded := idempotency.FromContext(ctx)
	token, claimed := tokenFrom(ctx)
	if !guarded || !claimed {
		return nil, connect.NewError(connect.CodeDataLoss, errors.New("the handler runs without a claim"))
	}
	charge := &chargesv1.Charge{Id: newChargeID(), Amount: req.Msg.GetAmount(), Currency: req.Msg.GetCurrency()}
	h.log.Write(journal.Event{Kind: journal.Run, Key: info.Key, Token: token, Attempt: info.Attempt, Charge: charge.GetId()})

	if mathrand.IntN(2) == 0 {
		ctx = context.WithoutCancel(ctx) // a handler that does not heed its context
	}
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	_, err := postgres.Querier(ctx, h.pool).Exec(ctx, addChargeSQL, charge.GetId(), info.Key, token, info.Attempt, h.slot)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("add the charge: %w", err))
	}
	if err := h.bank.capture(ctx, info.Key, info.DerivedKey("capture")); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("capture the charge: %w", err))
	}
	if err := h.pause(ctx); err != nil {
		return nil, err
	}
	if err := h.end(ctx, req.Msg.GetCardToken(), charge.GetId()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: charge}), nil
}

// pause takes as long as a handler's work may: mostly milliseconds, often a part of a lease, so that a fault finds many at
// work, and seldom more than one.
func (h *handler) pause(ctx context.Context) error {
	var d time.Duration
	switch n := mathrand.IntN(100); {
	case n < 75:
		d = mathrand.N(20 * time.Millisecond)
	case n < 97:
		d = mathrand.N(h.lease / 2)
	default:
		d = mathrand.N(h.lease * 3 / 2)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end returns the error that the card asks for. One that is kept has the charge's id as its text.
func (h *handler) end(ctx context.Context, card, id string) error {
	kept := connect.NewError(connect.CodeFailedPrecondition, errors.New(id))
	switch card {
	case CardDeclined:
		return kept
	case CardDeclinedKept:
		idempotency.KeepWrites(ctx)
		return kept
	case CardBroken:
		// The same charge again: refused by the primary key, which leaves a transaction failed.
		_, err := postgres.Querier(ctx, h.pool).Exec(ctx, addChargeSQL, id, "", "", 0, h.slot)
		if err == nil {
			return connect.NewError(connect.CodeDataLoss, errors.New("a charge was added twice"))
		}
		return kept
	case CardFlaky:
		if mathrand.IntN(2) == 0 {
			return connect.NewError(connect.CodeUnavailable, errors.New("the bank cannot be reached"))
		}
	case CardPanic:
		if mathrand.IntN(2) == 0 {
			panic("the card says so")
		}
	}
	return nil
}

func newChargeID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand.Read
	return "ch_" + hex.EncodeToString(b[:])
}
