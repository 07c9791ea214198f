package replay

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"reflect"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// protocol is one of the ways to call a Connect server. The tests speak them by hand, so that they see all that is sent,
// and not only what a client makes of it.
type protocol struct {
	name, contentType string
	json              bool // the codec; else proto
	enveloped         bool // gRPC and gRPC-Web
	http1             bool // rather than HTTP/2
}

var (
	connectProto = protocol{name: "Connect proto", contentType: "application/proto"}
	connectJSON  = protocol{name: "Connect JSON", contentType: "application/json", json: true, http1: true}
	grpc         = protocol{name: "gRPC", contentType: "application/grpc+proto", enveloped: true}
	grpcWeb      = protocol{name: "gRPC-Web", contentType: "application/grpc-web+proto", enveloped: true}

	protocols = []protocol{connectProto, connectJSON, grpc, grpcWeb}
)

// wire is an answer as it was sent.
type wire struct {
	protocol        protocol
	status          int
	header, trailer http.Header // trailer: HTTP's, or those in a gRPC-Web body
	payloads        [][]byte    // messages; the body of a Connect error
}

// call asks for an answer, under a key unless that is empty.
func (r *rig) call(t tb, p protocol, path, name, key string) wire {
	t.Helper()
	body, err := p.request(&testv1.CallRequest{Answer: name})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", p.contentType)
	if p.enveloped {
		req.Header.Set("TE", "trailers")
	} else {
		req.Header.Set("Connect-Protocol-Version", "1")
	}
	if key != "" {
		req.Header.Set(idempotency.DefaultHeader, key)
	}
	res, err := r.clients[p.http1].Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	received, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.read(res, received)
	if err != nil {
		t.Fatalf("%s: %v in %q", p.name, err, received)
	}
	return w
}

func (p protocol) request(m proto.Message) ([]byte, error) {
	if p.json {
		return protojson.Marshal(m)
	}
	b, err := proto.Marshal(m)
	if p.enveloped {
		b = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
	}
	return b, err
}

// trailersFlag marks the envelope with the trailers of gRPC-Web.
const trailersFlag = 0x80

func (p protocol) read(res *http.Response, body []byte) (wire, error) {
	w := wire{protocol: p, status: res.StatusCode, header: res.Header, trailer: res.Trailer}
	// What no two answers have in common.
	w.header.Del("Date")
	w.header.Del("Content-Length")
	if !p.enveloped {
		w.payloads = [][]byte{body}
		return w, nil
	}
	for len(body) > 0 {
		if len(body) < 5 || uint64(len(body)) < 5+uint64(binary.BigEndian.Uint32(body[1:])) {
			return w, io.ErrUnexpectedEOF
		}
		flags, content := body[0], body[5:5+binary.BigEndian.Uint32(body[1:])]
		body = body[5+len(content):]
		if flags&trailersFlag == 0 {
			w.payloads = append(w.payloads, content)
			continue
		}
		trailer, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(content))).ReadMIMEHeader()
		if err != nil && !errors.Is(err, io.EOF) {
			return w, err
		}
		w.trailer = http.Header(trailer)
	}
	return w, nil
}

// takeMark takes the mark of a replay off, and reports whether it was there, once.
func (w wire) takeMark() bool {
	name := http.CanonicalHeaderKey(idempotency.HeaderReplayed)
	marks := slices.Concat(w.header[name], w.trailer[name])
	delete(w.header, name)
	delete(w.trailer, name)
	return len(marks) == 1 && marks[0] == "true"
}

// state is the answer's error, and OK where it is a message.
func (w wire) state(t tb) *status.Status {
	t.Helper()
	s := new(status.Status)
	if w.protocol.enveloped {
		from := w.trailer
		if from.Get("Grpc-Status") == "" {
			from = w.header // gRPC-Web has no trailers where there is nothing before them
		}
		details, err := connect.DecodeBinaryHeader(from.Get("Grpc-Status-Details-Bin"))
		if err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(details, s); err != nil {
			t.Fatal(err)
		}
		code, err := strconv.ParseInt(from.Get("Grpc-Status"), 10, 32)
		if err != nil {
			t.Fatalf("%v: the status does not parse: %v", w, err)
		}
		s.Code = int32(code)
		return s
	}
	if w.status == http.StatusOK {
		return s
	}
	var sent struct {
		Code    connect.Code
		Message string
		Details []struct{ Type, Value string }
	}
	if err := json.Unmarshal(w.payloads[0], &sent); err != nil {
		t.Fatalf("%v: %v", w, err)
	}
	s.Code, s.Message = int32(sent.Code), sent.Message
	for _, d := range sent.Details {
		value, err := connect.DecodeBinaryHeader(d.Value)
		if err != nil {
			t.Fatal(err)
		}
		s.Details = append(s.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: value})
	}
	return s
}

// mustRefuse checks that the answer is the guard's refusal, and no replay.
func (w wire) mustRefuse(t tb, code connect.Code, reason string) {
	t.Helper()
	s, info := w.state(t), new(errdetails.ErrorInfo)
	for _, d := range s.GetDetails() {
		if d.MessageIs(info) {
			if err := d.UnmarshalTo(info); err != nil {
				t.Fatal(err)
			}
		}
	}
	if connect.Code(s.GetCode()) != code || info.GetReason() != reason || info.GetDomain() != idempotency.Domain {
		t.Errorf("%s: %v, want %v with %s", w.protocol.name, w, code, reason)
	}
	if w.takeMark() {
		t.Errorf("%s: a refusal is marked as a replay", w.protocol.name)
	}
}

// differs says where two answers over one protocol differ, and nothing where they are equal. Messages are of the type that
// newReply makes.
func (w wire) differs(other wire, newReply func() proto.Message) string {
	switch {
	case w.status != other.status:
		return fmt.Sprintf("the HTTP status is %d and %d", w.status, other.status)
	case !reflect.DeepEqual(w.header, other.header):
		return fmt.Sprintf("the header is\n%q and\n%q", w.header, other.header)
	case len(w.trailer)+len(other.trailer) > 0 && !reflect.DeepEqual(w.trailer, other.trailer):
		return fmt.Sprintf("the trailer is\n%q and\n%q", w.trailer, other.trailer)
	case len(w.payloads) != len(other.payloads):
		return fmt.Sprintf("there are %d and %d messages", len(w.payloads), len(other.payloads))
	case len(w.payloads) == 0:
		return ""
	}
	a, b := w.payloads[0], other.payloads[0]
	if bytes.Equal(a, b) {
		return ""
	}
	if w.protocol.json || w.status != http.StatusOK {
		return fmt.Sprintf("the body is\n%.1000s and\n%.1000s", a, b)
	}
	// The order of map entries is another each time, and nothing else may differ.
	canonicalA, errA := canonical(a, newReply())
	canonicalB, errB := canonical(b, newReply())
	if errA != nil || errB != nil || len(a) != len(b) || !bytes.Equal(canonicalA, canonicalB) {
		return fmt.Sprintf("the message is\n%.1000x and\n%.1000x (%v, %v)", a, b, errA, errB)
	}
	return ""
}

// canonical is a message's bytes with map entries in order.
func canonical(b []byte, m proto.Message) ([]byte, error) {
	if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(b, m); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
}

func (w wire) String() string {
	return fmt.Sprintf("HTTP %d, header %q, trailer %q, payload %.1000q", w.status, w.header, w.trailer, w.payloads)
}
