package main

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
)

func TestALeasedCallWithoutItsClientIsFinishedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	r := mustRun(t, nothingInstalled, "-database-url", url, "-mode", "leased")
	c := r.client(t)
	// Over HTTP/2, where the client's leaving resets the stream.
	h2c := newClient(t, (*http.Protocols).SetUnencryptedHTTP2)
	c.ChargeServiceClient = chargesv1connect.NewChargeServiceClient(h2c, c.url, connect.WithGRPC())
	c.hangUp(t)
	r.stop()
	mustContain(t, receive(t, r.log, "a line of the log"), "stopping")
	r.slow.goOn()
	if err := receive(t, r.ended, "the end of the run"); err != nil {
		t.Error(err)
	}

	r = mustRun(t, nothingInstalled, "-database-url", url)
	c = r.client(t)
	id, replayed := c.mustCharge(t, "k", "tok_slow")
	if !replayed {
		t.Error("the retry ran again")
	}
	c.wantCharges(t, id)
	r.mustEnd(t)
}
