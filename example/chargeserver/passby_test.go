package main

import (
	"testing"

	"connectrpc.com/connect"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func TestRequireKeyRefusesWritesWithoutOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, inMemory, "-require-key")
	_, err := r.CreateCharge(t.Context(), keyed("", charge("tok_ok")))
	wantError(t, err, connect.CodeInvalidArgument, idempotency.ReasonKeyRequired)
	_, err = r.RefundCharge(t.Context(), keyed("", &chargesv1.RefundChargeRequest{Id: "ch_0"}))
	wantError(t, err, connect.CodeInvalidArgument, idempotency.ReasonKeyRequired)
	r.wantCharges(t)
	r.mustCharge(t, "k", "tok_ok")
}

func TestReadsPassBy(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in, "-require-key")
			id, _ := r.mustCharge(t, "charge", "tok_ok")
			for _, key := range []string{"", "read", "read"} {
				res, err := r.GetCharge(t.Context(), keyed(key, &chargesv1.GetChargeRequest{Id: id}))
				if err != nil {
					t.Fatal(err)
				}
				if isReplay(res.Header()) || res.Msg.GetCharge().GetId() != id {
					t.Errorf("got %v with %v", res.Msg, res.Header())
				}
			}
			r.wantCharges(t, id)
			stream, err := r.ListCharges(t.Context(), keyed("read", &chargesv1.ListChargesRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			for stream.Receive() {
			}
			if err := stream.Err(); err != nil {
				t.Error(err)
			}
			found, err := r.backend.store.Look(t.Context(), []store.ID{{Key: "charge"}, {Key: "read"}})
			if err != nil {
				t.Fatal(err)
			}
			if found[0].State != store.Completed || found[1].State != store.Absent {
				t.Errorf("the keys are %v and %v, want one completed and none for the reads", found[0].State, found[1].State)
			}
		})
	}
}
