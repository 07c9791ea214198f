package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, inMemory)
	client := grpchealth.NewClient(newClient(t, (*http.Protocols).SetHTTP1), r.url)
	for _, service := range []string{"", chargesv1connect.ChargeServiceName} {
		res, err := client.Check(t.Context(), &grpchealth.CheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != grpchealth.StatusServing {
			t.Errorf("%q: %v", service, res.Status)
		}
	}
}

func TestReflection(t *testing.T) {
	t.Parallel()
	r := newRig(t, inMemory)
	client := grpcreflect.NewClient(newClient(t, (*http.Protocols).SetUnencryptedHTTP2), r.url, connect.WithGRPC())
	stream := client.NewStream(t.Context())
	names, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	if want := []protoreflect.FullName{"charges.v1.ChargeService", "grpc.health.v1.Health"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	files, err := stream.FileContainingSymbol(chargesv1connect.ChargeServiceName)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Error("no file has the service")
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
}

func TestOneKeyOnEveryProtocol(t *testing.T) {
	t.Parallel()
	r := newRig(t, inMemory)
	h1, h2c := newClient(t, (*http.Protocols).SetHTTP1), newClient(t, (*http.Protocols).SetUnencryptedHTTP2)
	first, _ := r.mustCharge(t, "k", "tok_ok")
	for name, client := range map[string]chargesv1connect.ChargeServiceClient{
		"Connect, JSON, HTTP/1.1": chargesv1connect.NewChargeServiceClient(h1, r.url, connect.WithProtoJSON()),
		"Connect, h2c":            chargesv1connect.NewChargeServiceClient(h2c, r.url),
		"gRPC, h2c":               chargesv1connect.NewChargeServiceClient(h2c, r.url, connect.WithGRPC()),
		"gRPC-Web, HTTP/1.1":      chargesv1connect.NewChargeServiceClient(h1, r.url, connect.WithGRPCWeb()),
	} {
		res, err := client.CreateCharge(t.Context(), keyed("k", charge("tok_ok")))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if id := res.Msg.GetCharge().GetId(); id != first || !isReplay(res.Header()) {
			t.Errorf("%s: got %s with %v, want a replay of %s", name, id, res.Header(), first)
		}
	}
}

func TestALargeRequestIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, inMemory)
	req := charge("tok_ok")
	req.Description = strings.Repeat("x", maxRequest)
	_, err := r.CreateCharge(t.Context(), keyed("k", req))
	wantError(t, err, connect.CodeResourceExhausted, "")
}

func TestAnOutcomeIsOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	observe := logOutcome(slog.New(slog.NewTextHandler(&out, nil)))
	observe(t.Context(), idempotency.Event{
		Procedure: "/a.B/C",
		Outcome:   idempotency.Failed,
		Duration:  1234567 * time.Nanosecond,
		KeyDigest: "0123456789ab",
		Err:       io.ErrUnexpectedEOF,
	})
	_, got, _ := strings.Cut(out.String(), " ") // behind the time
	want := `level=ERROR msg=call procedure=/a.B/C outcome=failed duration=1.235ms key_digest=0123456789ab error="unexpected EOF"` + "\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// lines is a writer that hands on each line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestExpiredKeysAreSwept(t *testing.T) {
	t.Parallel()
	st := memory.New()
	id := store.ID{Key: "k"}
	const ttl = time.Millisecond
	_, attempt, err := st.Claim(t.Context(), store.Claim{ID: id, Token: store.NewToken(), RequestHash: "h", TTL: ttl, Lease: ttl / 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := attempt.Complete(t.Context(), store.Record{State: store.Completed}, false); err != nil {
		t.Fatal(err)
	}
	logged := make(lines, 100)
	stop := startSweeping(t.Context(), st, time.Millisecond, slog.New(slog.NewTextHandler(logged, nil)))
	if line := receive(t, logged, "a sweep"); !strings.Contains(line, `msg="swept expired keys" deleted=1`) {
		t.Errorf("got %s", line)
	}
	stop()
	found, err := st.Look(t.Context(), []store.ID{id})
	if err != nil {
		t.Fatal(err)
	}
	if found[0].State != store.Absent {
		t.Errorf("the key is %v", found[0].State)
	}
}

func TestSweepsThatFailAreLogged(t *testing.T) {
	t.Parallel()
	logged := make(lines, 100)
	stop := startSweeping(t.Context(), brokenStore{memory.New()}, time.Hour, slog.New(slog.NewTextHandler(logged, nil)))
	if line := receive(t, logged, "a sweep"); !strings.Contains(line, `msg="a sweep failed" error="unexpected EOF"`) {
		t.Errorf("got %s", line)
	}
	stop()
}

type brokenStore struct{ store.Store }

func (brokenStore) Sweep(context.Context, store.Cursor, int) (store.Cursor, int, error) {
	return store.Cursor{}, 0, io.ErrUnexpectedEOF
}
