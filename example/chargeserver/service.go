package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"connectrpc.com/connect"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
)

// service is the ChargeService. It knows nothing of keys: what makes its retried calls run once is outside of it.
type service struct {
	ledger ledger
	cards  *cards
	log    *slog.Logger
}

var _ chargesv1connect.ChargeServiceHandler = (*service)(nil)

func newService(l ledger, c *cards, log *slog.Logger) *service {
	return &service{ledger: l, cards: c, log: log}
}

// CreateCharge charges the card and writes the charge down.
func (s *service) CreateCharge(
	ctx context.Context, req *connect.Request[chargesv1.CreateChargeRequest],
) (*connect.Response[chargesv1.CreateChargeResponse], error) {
	if err := validate(req.Msg); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err := s.cards.charge(ctx, req.Msg.GetCardToken(), req.Msg.GetDescription()); err != nil {
		return nil, err
	}
	charge := &chargesv1.Charge{
		Id:          newChargeID(),
		Amount:      req.Msg.GetAmount(),
		Currency:    req.Msg.GetCurrency(),
		Description: req.Msg.GetDescription(),
		Status:      chargesv1.ChargeStatus_CHARGE_STATUS_CAPTURED,
	}
	if err := s.ledger.add(ctx, charge); err != nil {
		return nil, s.ledgerError(ctx, err)
	}
	return connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: charge}), nil
}

// RefundCharge gives a charge back, whole and once.
func (s *service) RefundCharge(
	ctx context.Context, req *connect.Request[chargesv1.RefundChargeRequest],
) (*connect.Response[chargesv1.RefundChargeResponse], error) {
	charge, err := s.ledger.refund(ctx, req.Msg.GetId())
	if err != nil {
		return nil, s.ledgerError(ctx, err)
	}
	return connect.NewResponse(&chargesv1.RefundChargeResponse{Charge: charge}), nil
}

// GetCharge reads one charge.
func (s *service) GetCharge(
	ctx context.Context, req *connect.Request[chargesv1.GetChargeRequest],
) (*connect.Response[chargesv1.GetChargeResponse], error) {
	charge, err := s.ledger.get(ctx, req.Msg.GetId())
	if err != nil {
		return nil, s.ledgerError(ctx, err)
	}
	return connect.NewResponse(&chargesv1.GetChargeResponse{Charge: charge}), nil
}

// ListCharges streams every charge, the oldest first.
func (s *service) ListCharges(
	ctx context.Context, _ *connect.Request[chargesv1.ListChargesRequest],
	stream *connect.ServerStream[chargesv1.ListChargesResponse],
) error {
	for charge, err := range s.ledger.all(ctx) {
		if err != nil {
			return s.ledgerError(ctx, err)
		}
		if err := stream.Send(&chargesv1.ListChargesResponse{Charge: charge}); err != nil {
			return err
		}
	}
	return nil
}

func validate(req *chargesv1.CreateChargeRequest) error {
	if req.GetAmount() <= 0 {
		return fmt.Errorf("amount is %d, and must be more than zero, in minor units", req.GetAmount())
	}
	notUpper := func(r rune) bool { return r < 'A' || r > 'Z' }
	if len(req.GetCurrency()) != 3 || strings.ContainsFunc(req.GetCurrency(), notUpper) {
		return fmt.Errorf("currency is %q, and must be three upper-case letters (ISO 4217)", req.GetCurrency())
	}
	if strings.ContainsRune(req.GetDescription(), 0) {
		return errors.New("description holds U+0000, which PostgreSQL's text cannot")
	}
	return nil
}

func newChargeID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand.Read
	return "ch_" + hex.EncodeToString(b[:])
}

// ledgerError says to the client what the ledger's error means for the call.
func (s *service) ledgerError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errNoCharge):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, errRefunded):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		s.log.LogAttrs(ctx, slog.LevelError, "the ledger failed", slog.Any("error", err))
		return connect.NewError(connect.CodeInternal, hiddenError{err})
	}
}

// hiddenError keeps from the client what the ledger said, and leaves it to be found: the guard looks there for a conflict
// between transactions.
type hiddenError struct{ cause error }

func (hiddenError) Error() string   { return "the ledger failed" }
func (e hiddenError) Unwrap() error { return e.cause }
