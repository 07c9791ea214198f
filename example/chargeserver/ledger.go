package main

import (
	"context"
	"errors"
	"iter"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
)

// ledger is where charges are written down. What it returns is the caller's own.
type ledger interface {
	// add writes a new charge down, and sets its time.
	add(ctx context.Context, charge *chargesv1.Charge) error
	// get returns a charge, or errNoCharge.
	get(ctx context.Context, id string) (*chargesv1.Charge, error)
	// refund marks a charge as refunded and returns it, or errNoCharge, or errRefunded where it was refunded before.
	refund(ctx context.Context, id string) (*chargesv1.Charge, error)
	// all returns every charge, the oldest first. An error is the last element.
	all(ctx context.Context) iter.Seq2[*chargesv1.Charge, error]
}

var (
	errNoCharge = errors.New("there is no charge with this id")
	errRefunded = errors.New("the charge was refunded before")
)
