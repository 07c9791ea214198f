package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
)

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, inTransactional)
	for name, change := range map[string]func(*chargesv1.CreateChargeRequest){
		"amount of zero":      func(c *chargesv1.CreateChargeRequest) { c.Amount = 0 },
		"negative amount":     func(c *chargesv1.CreateChargeRequest) { c.Amount = -1 },
		"no currency":         func(c *chargesv1.CreateChargeRequest) { c.Currency = "" },
		"short currency":      func(c *chargesv1.CreateChargeRequest) { c.Currency = "EU" },
		"long currency":       func(c *chargesv1.CreateChargeRequest) { c.Currency = "EURO" },
		"lower-case currency": func(c *chargesv1.CreateChargeRequest) { c.Currency = "eur" },
		"currency of digits":  func(c *chargesv1.CreateChargeRequest) { c.Currency = "978" },
		"currency not ASCII":  func(c *chargesv1.CreateChargeRequest) { c.Currency = "€" },
		"no token":            func(c *chargesv1.CreateChargeRequest) { c.CardToken = "" },
		"unknown token":       func(c *chargesv1.CreateChargeRequest) { c.CardToken = "tok_other" },
		"U+0000 in the text":  func(c *chargesv1.CreateChargeRequest) { c.Description = "a\x00b" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := charge("tok_ok")
			change(req)
			_, err := r.CreateCharge(t.Context(), keyed("", req))
			wantError(t, err, connect.CodeInvalidArgument, "")
		})
	}
}

func TestAnUnknownChargeIsNotFound(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			for _, id := range []string{"", "ch_0", "ch_\x00"} {
				_, err := r.GetCharge(t.Context(), keyed("", &chargesv1.GetChargeRequest{Id: id}))
				wantError(t, err, connect.CodeNotFound, "")
				_, err = r.RefundCharge(t.Context(), keyed("", &chargesv1.RefundChargeRequest{Id: id}))
				wantError(t, err, connect.CodeNotFound, "")
			}
		})
	}
}

func TestAChargeHasWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			before := time.Now()
			res, err := r.CreateCharge(t.Context(), keyed("", charge("tok_ok")))
			if err != nil {
				t.Fatal(err)
			}
			got := res.Msg.GetCharge()
			if len(got.GetId()) != len("ch_")+24 || got.GetAmount() != 1299 || got.GetCurrency() != "EUR" ||
				got.GetDescription() != "Coffee beans" || got.GetStatus() != chargesv1.ChargeStatus_CHARGE_STATUS_CAPTURED {
				t.Errorf("got %v", got)
			}
			// By the database's clock, which may be another machine's.
			if created := got.GetCreateTime().AsTime(); created.Before(before.Add(-time.Hour)) || created.After(time.Now().Add(time.Hour)) {
				t.Errorf("it was created at %v", created)
			}
		})
	}
}

func TestTheClientHearsNothingOfTheLedgersFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, inTransactional)
	if _, err := r.backend.pool.Exec(t.Context(), "alter table charges rename to elsewhere"); err != nil {
		t.Fatal(err)
	}
	_, err := r.CreateCharge(t.Context(), keyed("k", charge("tok_ok")))
	wantError(t, err, connect.CodeInternal, "")
	if heard := connectError(t, err).Message(); heard != "the ledger failed" {
		t.Errorf("the client hears %q", heard)
	}
	if _, err := r.backend.pool.Exec(t.Context(), "alter table elsewhere rename to charges"); err != nil {
		t.Fatal(err)
	}
	id, replayed := r.mustCharge(t, "k", "tok_ok")
	if replayed {
		t.Error("the failure was kept")
	}
	r.wantCharges(t, id)
}

func TestSlowlyTakesFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := slowly(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestSlowlyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := slowly(ctx); err != context.DeadlineExceeded { //nolint:errorlint // as it is, for connect's code
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
