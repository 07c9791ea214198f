package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/client"
)

// A connection that ends too early is told from errors of other kinds.
func TestBroken(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("unexpected EOF"), false},
		{io.EOF, false},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{&net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}}, false}, // Unavailable to all transports
		{fmt.Errorf("read message: %w", io.ErrUnexpectedEOF), true},
		{net.ErrClosed, true},
		{&net.OpError{Op: "read", Err: &os.SyscallError{Syscall: "read", Err: syscall.ECONNRESET}}, true},
		{&net.OpError{Op: "write", Err: &os.SyscallError{Syscall: "write", Err: syscall.EPIPE}}, true},
		{syscall.ECONNABORTED, true},
	} {
		if got := client.Broken(test.err); got != test.want {
			t.Errorf("%v: broken = %v, want %v", test.err, got, test.want)
		}
	}
}

// net/http's own error for a stream whose handler gave up is known, although its type is not exported.
func TestBrokenStream(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	transport := &http.Transport{Protocols: s.Config.Protocols}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err == nil {
		_ = res.Body.Close()
		t.Fatal("answered")
	}
	if !client.Broken(err) {
		t.Errorf("%v (%T) is not taken for a broken stream", err, err)
	}
}
