package idempotency

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// An encrypted reply is bound to each of these, and to where one of them ends and the next begins.
func TestWhatAnEncryptedReplyIsBoundTo(t *testing.T) {
	t.Parallel()
	kept := store.Record{State: store.Completed, Code: code.Code_OK}
	seen := make(map[string]string)
	for name, bound := range map[string][]byte{
		"a row":             associated(store.ID{Scope: "s", Key: "k"}, "v1:h", kept),
		"another scope":     associated(store.ID{Scope: "t", Key: "k"}, "v1:h", kept),
		"another key":       associated(store.ID{Scope: "s", Key: "l"}, "v1:h", kept),
		"another boundary":  associated(store.ID{Scope: "sk", Key: ""}, "v1:h", kept),
		"another request":   associated(store.ID{Scope: "s", Key: "k"}, "v1:i", kept),
		"another state":     associated(store.ID{Scope: "s", Key: "k"}, "v1:h", store.Record{State: store.NotKept, Code: kept.Code}),
		"another code":      associated(store.ID{Scope: "s", Key: "k"}, "v1:h", store.Record{State: kept.State, Code: code.Code_NOT_FOUND}),
		"a code of no name": associated(store.ID{Scope: "s", Key: "k"}, "v1:h", store.Record{State: kept.State, Code: 99}),
	} {
		if other, taken := seen[string(bound)]; taken {
			t.Errorf("%s and %s are bound alike", name, other)
		}
		seen[string(bound)] = name
	}
}
