package idempotency_test

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func TestChanged(t *testing.T) {
	t.Parallel()
	type values = map[string][]string
	for name, c := range map[string]struct {
		before, after values
		put           idempotency.Metadata
		replaced      []string
	}{
		"nothing was there":           {nil, values{"X-A": {"1", "2"}}, idempotency.Metadata{"x-a": {"1", "2"}}, nil},
		"nothing was done":            {values{"X-A": {"1"}}, values{"X-A": {"1"}}, nil, nil},
		"a value was added":           {values{"X-A": {"1"}}, values{"X-A": {"1", "2"}}, idempotency.Metadata{"x-a": {"2"}}, nil},
		"a value was replaced":        {values{"X-A": {"1"}}, values{"X-A": {"2"}}, idempotency.Metadata{"x-a": {"2"}}, []string{"x-a"}},
		"one of two was taken away":   {values{"X-A": {"1", "2"}}, values{"X-A": {"1"}}, idempotency.Metadata{"x-a": {"1"}}, []string{"x-a"}},
		"a name was taken away":       {values{"X-A": {"1"}}, values{}, nil, []string{"x-a"}},
		"a name was left valueless":   {values{"X-A": {"1"}}, values{"X-A": {}}, nil, []string{"x-a"}},
		"a name that never had any":   {values{"X-A": {}}, values{}, nil, nil},
		"two names of different case": {nil, values{"X-A": {"1"}, "x-a": {"1"}}, idempotency.Metadata{"x-a": {"1", "1"}}, nil},
	} {
		put, replaced := idempotency.Changed(c.before, c.after)
		if !maps.EqualFunc(put, c.put, slices.Equal) || !slices.Equal(replaced, c.replaced) {
			t.Errorf("%s: %q, replaced %q; want %q, replaced %q", name, put, replaced, c.put, c.replaced)
		}
	}
}

// What replaces another's value is left out like all else that is never kept: a replay lets the other's stand.
func TestWhatIsNeverKeptReplacesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithoutMetadata("X-Secret"))
	first := created("ch_1")
	first.ReplacedHeader = []string{"set-cookie", "x-kept", "x-secret"}
	first.Header = idempotency.Metadata{"set-cookie": {"session=first"}, "x-kept": {"1"}}
	r.mustRun(t, charge("k", 1), first)
	if got := r.mustReplay(t, charge("k", 1), first.Message).ReplacedHeader; !slices.Equal(got, []string{"x-kept"}) {
		t.Errorf("replaced are %q, want x-kept alone", got)
	}
}

// Rows from before the schema had a word for it.
func TestMetadataOfAnOlderRowIsAdded(t *testing.T) {
	t.Parallel()
	encoded, err := proto.Marshal(&idempotencyv1.StoredReply{
		Result: &idempotencyv1.StoredReply_Message{Message: new(idempotencyv1.Message)},
		Header: []*idempotencyv1.Metadata{{Name: "x-a", Values: [][]byte{[]byte("1")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, holding(store.Completed, encoded))
	got := r.mustReplay(t, charge("k", 1), nil)
	if len(got.ReplacedHeader) > 0 || !slices.Equal(got.Header["x-a"], []string{"1"}) {
		t.Errorf("the header is %q, replaced %q; want x-a, and nothing replaced", got.Header, got.ReplacedHeader)
	}
}

// A server's clients get a message, even of a worker's that had nothing to say.
func TestNoMessageIsAnEmptyOneOfTheMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	c := charge("k", 1)
	r.mustRun(t, c, idempotency.Reply{})
	c.Method = chargesv1.File_charges_v1_charges_proto.Services().ByName("ChargeService").Methods().ByName("CreateCharge")
	r.mustReplay(t, c, new(chargesv1.CreateChargeResponse))
}
