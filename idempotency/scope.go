package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// ScopeFunc returns whom a call's key belongs to: a tenant or an account, as the server knows it (from its authentication,
// never from what the client may choose freely). Two scopes never see each other's replies. An empty scope is a scope.
//
// Any string may be returned; one that is long or holds bytes that a store cannot keep is stored as its digest. An error
// refuses the call, before anything is sent to the store: an [*Error], or one of the adapter's own kind such as a
// *connect.Error, reaches the client as it is, and any other is kept from the client and becomes Internal.
type ScopeFunc func(ctx context.Context, c Call) (string, error)

func singleScope(context.Context, Call) (string, error) { return "", nil }

func (g *Guard) scopeOf(ctx context.Context, c Call) (string, error) {
	scope, err := g.scope(ctx, c)
	if err == nil {
		return scope, nil
	}
	return "", refusedBy(err, "the call's scope could not be told")
}

const (
	maxScope     = 255
	scopeDigest  = "sha256:"
	badScopeRune = "\x00"
)

// storedScope is the form in which a scope stands in the store. A scope that looks like a digest is digested too, so that
// no scope can name another's rows.
func storedScope(scope string) string {
	if len(scope) <= maxScope && utf8.ValidString(scope) && !strings.Contains(scope, badScopeRune) &&
		!strings.HasPrefix(scope, scopeDigest) {
		return scope
	}
	sum := sha256.Sum256([]byte(scope))
	return scopeDigest + hex.EncodeToString(sum[:])
}
