package idempotency_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

var (
	oldSecret = []byte("the old secret..")
	newSecret = []byte("the new secret..")
)

func TestASecretMakesTheFingerprintAnHMAC(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithFingerprintSecret(newSecret))
	c := charge("k", 1)
	r.mustRun(t, c, created("ch_1"))
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.Request)
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha256.New, newSecret)
	h.Write([]byte{byte(len(createCharge))})
	h.Write([]byte(createCharge))
	h.Write(message)
	if got, want := r.store.asked()[0].RequestHash, "v1:hmac-sha256:"+hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("the fingerprint is %q, want %q", got, want)
	}
	r.mustReplay(t, c, created("ch_1").Message)
}

// Servers with the old secret, the new one and none share a table.
func TestSecretsRoll(t *testing.T) {
	t.Parallel()
	options := map[string][]idempotency.Option{
		"none":     nil,
		"old":      {idempotency.WithFingerprintSecret(oldSecret)},
		"old, new": {idempotency.WithFingerprintSecret(oldSecret, newSecret)},
		"new, old": {idempotency.WithFingerprintSecret(newSecret, oldSecret)},
		"only new": {idempotency.WithFingerprintSecret(newSecret)},
	}
	for _, test := range []struct {
		first, retry string
		same         bool
	}{
		{"none", "old", true}, {"old", "none", false},
		{"old", "old, new", true}, {"old, new", "old", true},
		{"old, new", "new, old", true}, {"new, old", "old, new", true},
		{"old", "only new", false}, {"only new", "old", false},
	} {
		t.Run(test.first+" then "+test.retry, func(t *testing.T) {
			t.Parallel()
			s := leased()
			newRig(t, s, options[test.first]...).mustRun(t, charge("k", 1), created("ch_1"))
			r := newRig(t, s, options[test.retry]...)
			if test.same {
				r.mustReplay(t, charge("k", 1), created("ch_1").Message)
			} else {
				r.mustRefuse(t, charge("k", 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
			}
			r.mustRefuse(t, charge("k", 2), code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
		})
	}
}

func TestAShortSecretIsRefused(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]idempotency.Option{
		"none":           idempotency.WithFingerprintSecret(nil),
		"a short one":    idempotency.WithFingerprintSecret(newSecret[:15]),
		"a short former": idempotency.WithFingerprintSecret(newSecret, oldSecret[:15]),
	} {
		_, err := idempotency.New(leased(), idempotency.WithSingleScope(), opt)
		if err == nil || !strings.Contains(err.Error(), "16") {
			t.Errorf("%s: New said %v", name, err)
		}
	}
}
