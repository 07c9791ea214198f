package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
)

// slowTime is how long tok_slow takes: long enough to meet "in progress" from a second terminal.
const slowTime = 5 * time.Second

// cards stands for the network of a card's bank. The token decides what it says.
type cards struct {
	slow func(context.Context) error // what happens at tok_slow before the yes

	mu     sync.Mutex
	failed map[string]bool // the descriptions for which tok_unavailable_once has failed
}

func newCards(slow func(context.Context) error) *cards {
	return &cards{slow: slow, failed: make(map[string]bool)}
}

// charge returns nil where the bank said yes, and else the error for the client.
func (c *cards) charge(ctx context.Context, token, description string) error {
	switch token {
	case "tok_ok":
		return nil
	case "tok_declined":
		return declined("insufficient_funds")
	case "tok_slow":
		return c.slow(ctx)
	case "tok_unavailable_once":
		if c.firstTime(description) {
			return connect.NewError(connect.CodeUnavailable, errors.New("the card's bank cannot be reached"))
		}
		return nil
	default:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(
			"card_token is %q, and must be tok_ok, tok_declined, tok_slow or tok_unavailable_once", token))
	}
}

func declined(declineCode string) error {
	err := connect.NewError(connect.CodeFailedPrecondition, errors.New("the card was declined"))
	detail, detailErr := connect.NewErrorDetail(&chargesv1.DeclineDetail{DeclineCode: declineCode})
	if detailErr != nil {
		return detailErr
	}
	err.AddDetail(detail)
	return err
}

func (c *cards) firstTime(description string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.failed[description]
	c.failed[description] = true
	return first
}

// slowly takes slowTime, or as long as ctx lasts.
func slowly(ctx context.Context) error {
	select {
	case <-time.After(slowTime):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
