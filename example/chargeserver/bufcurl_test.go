package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
)

// TestBufCurl calls the server with buf curl, which learns the schema from the server's reflection.
func TestBufCurl(t *testing.T) {
	t.Parallel()
	r := newRig(t, inTransactional)
	id, _ := r.mustCharge(t, "k", "tok_ok")
	for _, protocol := range [][]string{
		{"--protocol", "connect"},
		{"--protocol", "grpc", "--http2-prior-knowledge"},
		{"--protocol", "grpcweb"},
	} {
		args := append([]string{"buf", "curl", "-H", "idempotency-key: k",
			"-d", `{"amount": 1299, "currency": "EUR", "card_token": "tok_ok", "description": "Coffee beans"}`}, protocol...)
		cmd := exec.CommandContext(t.Context(), "./scripts/tool.sh", append(args, r.url+"/charges.v1.ChargeService/CreateCharge")...)
		cmd.Dir = "../.."
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", protocol, err, stderr.String())
		}
		var got struct {
			Charge struct {
				ID string `json:"id"`
			} `json:"charge"`
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %v\n%s", protocol, err, out)
		}
		if got.Charge.ID != id {
			t.Errorf("%v: got %q, want a replay of %s", protocol, got.Charge.ID, id)
		}
	}
	r.wantCharges(t, id)
}
