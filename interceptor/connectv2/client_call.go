package connectv2

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"connectrpc.com/connect/v2"

	"github.com/connect-idempotency/connect-idempotency-go/client"
)

// clientCall is a logical unary call, in the shape of a stream. Nothing is sent before Receive, which sends the call as
// often as it takes.
type clientCall struct {
	*clientInterceptor
	ctx    context.Context //nolint:containedctx // a stream has no other way to its call's context
	cancel context.CancelFunc
	info   *connect.CallInfo // the caller's
	spec   connect.Spec
	next   connect.ClientFunc

	once     sync.Once
	complete chan struct{} // closed when message is as it stays
	sent     bool
	message  any
	closed   bool // for sending
	received bool
}

func newClientCall(ctx context.Context, i *clientInterceptor, spec connect.Spec, next connect.ClientFunc) *clientCall {
	info, ok := connect.CallInfoForClientContext(ctx)
	if !ok { // the interceptor was not called through connect.Client
		info = new(connect.CallInfo)
	}
	c := &clientCall{clientInterceptor: i, info: info, spec: spec, next: next, complete: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// SendHeaders does nothing: a unary call's header goes out with its message.
func (*clientCall) SendHeaders() error { return nil }

func (c *clientCall) Send(message any) error {
	switch {
	case c.closed:
		return io.EOF
	case c.sent:
		return connect.NewError(connect.CodeInternal, "a unary call sent a second message")
	}
	c.sent, c.message = true, message
	c.once.Do(func() { close(c.complete) })
	return nil
}

func (c *clientCall) CloseSend() error {
	c.closed = true
	c.once.Do(func() { close(c.complete) })
	return nil
}

// Close ends an attempt that runs.
func (c *clientCall) Close() error {
	c.cancel()
	return nil
}

func (c *clientCall) Receive(response any) error {
	if c.received {
		return io.EOF
	}
	c.received = true
	defer c.cancel()
	select {
	case <-c.complete:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	var last *connect.CallInfo
	var lastErr error
	logical := client.Call{Procedure: c.spec.Procedure, Keys: c.info.RequestHeader().Values(c.header)}
	err := c.retrier.Do(c.ctx, logical, func(ctx context.Context, key string) *client.Failure {
		ctx, last = c.attemptContext(ctx, key)
		lastErr = c.attempt(ctx, response)
		return failure(last, lastErr)
	})
	if notSent, ok := errors.AsType[*client.NotSentError](err); ok {
		return connect.NewError(connect.Code(notSent.Code), notSent.Error()).WithCause(notSent) //nolint:gosec // a code is small
	}
	show(c.info, last)
	return lastErr
}

// attemptContext is an attempt's own, with a call info of its own. The caller's header is not written to, nor handed on: a
// transport may still read an attempt's header when the attempt has failed.
func (c *clientCall) attemptContext(ctx context.Context, key string) (context.Context, *connect.CallInfo) {
	ctx, info := connect.NewClientContext(ctx)
	for name, values := range c.info.RequestHeader().All() {
		info.RequestHeader().SetValues(name, slices.Clone(values))
	}
	if key != "" {
		info.RequestHeader().Set(c.header, key)
	}
	return ctx, info
}

// attempt sends the call once.
func (c *clientCall) attempt(ctx context.Context, response any) (err error) {
	stream, err := c.next(ctx, c.spec)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := stream.Close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}()
	if c.sent {
		if err := stream.Send(c.message); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.Receive(response)
}

// show sets in the caller's call info what an attempt's shows of the transport and of the answer.
func show(info, of *connect.CallInfo) {
	info.Spec, info.PeerAddr, info.Protocol, info.Codec = of.Spec, of.PeerAddr, of.Protocol, of.Codec
	info.RequestEncoding, info.ResponseEncoding = of.RequestEncoding, of.ResponseEncoding
	info.SendStats, info.ReceiveStats, info.TransportInfo = of.SendStats, of.ReceiveStats, of.TransportInfo
	for name, values := range of.ResponseHeader().All() {
		info.ResponseHeader().SetValues(name, values)
	}
	for name, values := range of.ResponseTrailer().All() {
		info.ResponseTrailer().SetValues(name, values)
	}
}
