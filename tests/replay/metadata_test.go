package replay

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// several has values of every kind.
var several = http.Header{
	"X-Several":    {"one", "two, three", "", "two, three"},
	"X-Binary-Bin": {connect.EncodeBinaryHeader([]byte{0, 255, 7}), "", connect.EncodeBinaryHeader([]byte("second"))},
	"X-Blanks":     {" around ", "tab\tin"},
	"X-Bytes":      {"caf\xe9", "é 😀"},
	"x-lower":      {"as it is spelt"},
	"X-Long":       {strings.Repeat("long ", 1000)},
}

func TestMetadata(t *testing.T) {
	reply := new(testv1.Proto3Message)
	odd := &testv1.WellKnownMessage{FieldMask: &fieldmaskpb.FieldMask{Paths: []string{"not__for__json"}}}
	holdsForAll(t, map[string]answer{
		"header on the response":          {message: reply, header: several},
		"trailer on the response":         {message: reply, trailer: several},
		"header on the call info":         {message: reply, infoHeader: several},
		"trailer on the call info":        {message: reply, infoTrailer: several},
		"all of them":                     {message: reply, header: several, trailer: several, infoHeader: several, infoTrailer: several},
		"header and trailer, and no JSON": {message: odd, header: several, trailer: several},
		"names that HTTP knows": {message: reply, header: http.Header{
			"Retry-After": {"3"}, "Cache-Control": {"no-store"}, "Etag": {`"1"`}, "Vary": {"Accept", "X-A"}, "Content-Language": {"en"}, "Location": {"/"},
		}},
		"one value each": {
			message: reply, header: http.Header{"X-A": {"1"}}, infoHeader: http.Header{"X-A": {"2"}},
			trailer: http.Header{"X-A": {"3"}}, infoTrailer: http.Header{"X-A": {"4"}},
		},
		"beside an error": {
			err: func() error { return withMetadata(connect.NewError(connect.CodeNotFound, nil)) }, infoHeader: several, infoTrailer: several,
		},
	}, protocols...)
}

// unkept is what a handler may set, and no retry gets: credentials, hop-by-hop headers, those of the protocols, and the
// guard's own.
var unkept = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "WWW-Authenticate", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Authentication-Info",
	"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Type", "Content-Length", "Content-Encoding", "Accept-Encoding", "Accept-Post", "Date", "Host", "User-Agent",
	"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin", "Grpc-Encoding", "Grpc-Something", "Connect-Protocol-Version",
	"Connect-Something", "Idempotency-Replayed",
	"X-Left-Out", // by the caller's wish
}

// However it is spelt, and wherever a handler sets it.
func TestMetadataThatIsNotReplayed(t *testing.T) {
	const secret = "the first caller's own"
	set := http.Header{"X-Kept": {"kept"}}
	for _, name := range unkept {
		set[http.CanonicalHeaderKey(name)] = []string{secret, secret}
		set[strings.ToLower(name)] = []string{secret}
		set[strings.ToUpper(name)] = []string{secret}
	}
	failing := fails(func() error {
		e := connect.NewError(connect.CodeNotFound, nil)
		add(e.Meta(), set)
		return e
	})
	failing.infoHeader, failing.infoTrailer = set, set
	answers := map[string]answer{
		"a message": {message: new(testv1.Proto3Message), header: set, trailer: set, infoHeader: set, infoTrailer: set},
		"an error":  failing,
	}
	shared := newTable(t)
	for _, mode := range modes {
		r := newRig(t, shared, mode, idempotency.WithoutMetadata("x-LEFT-out"))
		for kind, a := range answers {
			key, name := r.newKey(), r.register(a)
			if first := r.call(t, grpc, a.path(), name, key).String(); !strings.Contains(first, secret) {
				t.Errorf("%s, %s: the first caller got %s", mode, kind, first)
			}
			stored := new(idempotencyv1.StoredReply)
			if err := proto.Unmarshal(r.row(t, key).bytes, stored); err != nil {
				t.Fatal(err)
			}
			for _, m := range slices.Concat(stored.GetHeader(), stored.GetTrailer(), stored.GetError().GetMetadata()) {
				if m.GetName() != "x-kept" {
					t.Errorf("%s, %s: %s is kept", mode, kind, m)
				}
			}
			for _, p := range protocols {
				replay := r.call(t, p, a.path(), name, key)
				if !replay.takeMark() || !strings.Contains(replay.String(), `"X-Kept":["kept"`) || strings.Contains(replay.String(), secret) {
					t.Errorf("%s, %s, over %s: the replay is %v", mode, kind, p.name, replay)
				}
			}
		}
	}
}
