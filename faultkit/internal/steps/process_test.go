package steps_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// limit bounds what must happen, so that a test that waits in vain says for what.
const limit = 30 * time.Second

// process is a server in a process of its own.
type process struct {
	cmd    *exec.Cmd
	input  io.Closer // ends the process when it is closed, and so does the end of the test binary
	client chargesv1connect.ChargeServiceClient
	heard  chan struct{} // closed when the client would have got the first bytes of an answer, where it is deaf

	mu   sync.Mutex
	deaf bool
}

// startProcess starts a server, and returns once it listens.
func startProcess(t *testing.T, c config) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), heard: make(chan struct{})} //nolint:noctx // it is ended in order
	p.cmd.Env = append(os.Environ(), programVariable+"="+string(text), "GORACE=halt_on_error=1")
	var log bytes.Buffer
	p.cmd.Stderr = &log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // the test failed before the process ended
			t.Log(errors.Join(p.cmd.Process.Kill(), p.cmd.Wait()))
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("a server does not listen: %v", err)
	}
	transport := &http.Transport{DialContext: p.dial}
	t.Cleanup(transport.CloseIdleConnections)
	p.client = chargesv1connect.NewChargeServiceClient(&http.Client{Transport: transport}, "http://"+strings.TrimSpace(address))
	return p
}

// kill kills the process with SIGKILL.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	err := p.cmd.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended with %v, and was to be killed", err)
	}
}

// stop ends the process in order.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(p.input.Close(), p.cmd.Wait()); err != nil {
		t.Errorf("it did not stop in order: %v", err)
	}
}

// deafen has the client hear nothing more from the server.
func (p *process) deafen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

func (p *process) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &clientConn{Conn: conn, process: p}, nil
}

// clientConn is a client's connection, that may be deaf.
type clientConn struct {
	net.Conn

	process *process
	once    sync.Once
}

func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.process.mu.Lock()
	deaf := c.process.deaf
	c.process.mu.Unlock()
	if !deaf || n == 0 {
		return n, err
	}
	c.once.Do(func() { close(c.process.heard) })
	_, err = io.Copy(io.Discard, c.Conn) // until the server ends
	return 0, errors.Join(io.ErrUnexpectedEOF, err)
}

// answer is what a client was told of a charge.
type answer struct {
	charge, run string
	attempt     int64
	replayed    bool
}

// call calls the server once.
func (p *process) call(ctx context.Context, key string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req := connect.NewRequest(&chargesv1.CreateChargeRequest{Amount: 1299, Currency: "EUR"})
	req.Header().Set(idempotency.DefaultHeader, key)
	res, err := p.client.CreateCharge(ctx, req)
	if err != nil {
		return answer{}, err
	}
	charge := res.Msg.GetCharge()
	return answer{charge.GetId(), charge.GetDescription(), charge.GetAmount(), res.Header().Get(idempotency.HeaderReplayed) == "true"}, nil
}

// mustCall calls the server once, and must be answered.
func (p *process) mustCall(t *testing.T, key string) answer {
	t.Helper()
	a, err := p.call(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// reasonOf returns the guard's reason for a refusal, and "" where err is none.
func reasonOf(err error) string {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return ""
	}
	for _, d := range e.Details() {
		value, err := d.Value()
		if info, ok := value.(*errdetails.ErrorInfo); err == nil && ok && info.GetDomain() == idempotency.Domain {
			return info.GetReason()
		}
	}
	return ""
}
