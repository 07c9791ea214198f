package main

import (
	"context"
	"iter"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
)

// memoryLedger is a ledger that ends with the process. What it holds is never changed, only replaced.
type memoryLedger struct {
	mu      sync.Mutex
	charges []*chargesv1.Charge // the oldest first
}

func (l *memoryLedger) add(_ context.Context, c *chargesv1.Charge) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.CreateTime = timestamppb.Now()
	l.charges = append(l.charges, proto.CloneOf(c))
	return nil
}

func (l *memoryLedger) get(_ context.Context, id string) (*chargesv1.Charge, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := l.find(id)
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(l.charges[i]), nil
}

func (l *memoryLedger) refund(_ context.Context, id string) (*chargesv1.Charge, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := l.find(id)
	if err != nil {
		return nil, err
	}
	if l.charges[i].GetStatus() == chargesv1.ChargeStatus_CHARGE_STATUS_REFUNDED {
		return nil, errRefunded
	}
	refunded := proto.CloneOf(l.charges[i])
	refunded.Status = chargesv1.ChargeStatus_CHARGE_STATUS_REFUNDED
	l.charges[i] = refunded
	return proto.CloneOf(refunded), nil
}

// find returns the place of a charge. The caller has locked the ledger.
func (l *memoryLedger) find(id string) (int, error) {
	i := slices.IndexFunc(l.charges, func(c *chargesv1.Charge) bool { return c.GetId() == id })
	if i < 0 {
		return 0, errNoCharge
	}
	return i, nil
}

func (l *memoryLedger) all(context.Context) iter.Seq2[*chargesv1.Charge, error] {
	return func(yield func(*chargesv1.Charge, error) bool) {
		l.mu.Lock()
		charges := slices.Clone(l.charges)
		l.mu.Unlock()
		for _, c := range charges {
			if !yield(proto.CloneOf(c), nil) {
				return
			}
		}
	}
}
