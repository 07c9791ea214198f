package replay

import (
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
)

// randomMessages are the types of which messages are drawn.
var randomMessages = map[string]proto.Message{
	"proto3":           (*testv1.Proto3Message)(nil),
	"proto2":           (*testv1.Proto2Message)(nil),
	"an edition":       (*testv1.EditionMessage)(nil),
	"well-known types": (*testv1.WellKnownMessage)(nil),
}

func TestRandomMessages(t *testing.T) {
	rigs := rigsByMode(t)
	for name, of := range randomMessages {
		t.Run(name, func(t *testing.T) {
			var readable, unreadable int
			rapid.Check(t, func(t *rapid.T) {
				d := drawer{t: t, odd: rapid.Bool().Draw(t, "odd")}
				m := of.ProtoReflect().New()
				d.fill(m, 0)
				a := answer{message: m.Interface()}
				a.header, a.trailer = d.metadata("header"), d.metadata("trailer")
				a.infoHeader, a.infoTrailer = d.metadata("info header"), d.metadata("info trailer")
				r := rigs[rapid.SampledFrom(modes).Draw(t, "mode")]
				key := r.holds(t, a, rapid.SampledFrom(protocols).Draw(t, "first over"))
				if r.row(t, key).body != nil {
					readable++
				} else {
					unreadable++
				}
			})
			if readable == 0 || unreadable == 0 && name != "an edition" {
				t.Errorf("of the rows, %d have a response_body, and %d have none: too few of one kind", readable, unreadable)
			}
		})
	}
}

func TestRandomErrors(t *testing.T) {
	rigs := rigsByMode(t)
	rapid.Check(t, func(t *rapid.T) {
		d := drawer{t: t, odd: true}
		a := d.failure()
		a.infoHeader, a.infoTrailer = d.metadata("info header"), d.metadata("info trailer")
		r := rigs[rapid.SampledFrom(modes).Draw(t, "mode")]
		_ = r.holds(t, a, rapid.SampledFrom(protocols).Draw(t, "first over"))
	})
}

func rigsByMode(t *testing.T) map[string]*rig {
	t.Helper()
	rigs := make(map[string]*rig)
	shared := newTable(t)
	for _, mode := range modes {
		rigs[mode] = newRig(t, shared, mode)
	}
	return rigs
}

// failure draws an error, plain, connect's, or of another server.
func (d drawer) failure() answer {
	bytes := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) })
	text := rapid.OneOf(rapid.Just(""), rapid.String(), bytes).Draw(d.t, "text")
	if d.seldom() {
		return fails(func() error { return errors.New(text) })
	}
	code := connect.Code(rapid.Uint32Range(1, 16).Draw(d.t, "code"))
	details := make([]*anypb.Any, rapid.IntRange(0, 3).Draw(d.t, "details"))
	for i := range details {
		details[i] = new(anypb.Any)
		d.any(details[i], 1)
	}
	wire, meta := d.seldom(), d.metadata("metadata")
	return fails(func() error {
		e := connect.NewError(code, errors.New(text))
		if wire {
			e = connect.NewWireError(code, errors.New(text))
		}
		for _, detail := range details {
			added, err := connect.NewErrorDetail(detail)
			if err != nil {
				return err
			}
			e.AddDetail(added)
		}
		add(e.Meta(), meta)
		return e
	})
}

// metadata draws names with several values, some of them binary.
func (d drawer) metadata(of string) http.Header {
	name := rapid.SampledFrom([]string{"X-A", "X-B", "X-Several", "Etag", "X-Bin", "X-Raw-Bin"})
	value := rapid.StringMatching(`[ -~é]{0,20}`)
	m := make(http.Header)
	for _, n := range rapid.SliceOfNDistinct(name, 0, 2, rapid.ID).Draw(d.t, "names in "+of) {
		if n == "X-Bin" || n == "X-Raw-Bin" {
			m[n] = rapid.SliceOfN(rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), connect.EncodeBinaryHeader), 1, 3).Draw(d.t, "values")
			continue
		}
		m[n] = rapid.SliceOfN(value, 1, 3).Draw(d.t, "values")
	}
	return m
}
