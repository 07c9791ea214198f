package grpcgo

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// runStream is the transport stream that one run sees. It takes what the run sets, and lets nothing out.
type runStream struct {
	grpc.ServerTransportStream // the call's, for its method

	mu    sync.Mutex
	held  heldStream
	ended bool
}

// heldStream is what an answer brings with it beside its message or status.
type heldStream struct {
	header, trailer metadata.MD
	sent            bool // the run has called SendHeader
}

// errHeaderOver is what grpc's own stream says, but for its text.
var errHeaderOver = status.Error(codes.Internal, "idempotency: the header was sent before, or the call has ended")

// in puts the stream in the place of the call's. A call that has none has nowhere to set metadata, and stays so.
func (r *runStream) in(ctx context.Context, call grpc.ServerTransportStream) context.Context {
	if call == nil {
		return ctx
	}
	r.ServerTransportStream = call
	return grpc.NewContextWithServerTransportStream(ctx, r)
}

// SetHeader fails after SendHeader, and after the run.
func (r *runStream) SetHeader(md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held.sent || r.ended {
		return errHeaderOver
	}
	r.held.header = metadata.Join(r.held.header, md)
	return nil
}

// SendHeader fails the second time, and after the run.
func (r *runStream) SendHeader(md metadata.MD) error {
	if err := r.SetHeader(md); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.sent = true
	return nil
}

// SetTrailer fails after the run.
func (r *runStream) SetTrailer(md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errHeaderOver
	}
	r.held.trailer = metadata.Join(r.held.trailer, md)
	return nil
}

// end returns what the run has set. What a goroutine sets that the run left behind comes too late.
func (r *runStream) end() heldStream {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	return r.held
}

// handOn gives the call's stream what was held back. Where an outer interceptor has sent the header already, the trailer
// takes what it would have held.
func (h heldStream) handOn(call grpc.ServerTransportStream) {
	if call == nil {
		return
	}
	var err error
	if h.sent {
		err = call.SendHeader(h.header)
	} else if len(h.header) > 0 {
		err = call.SetHeader(h.header)
	}
	if err != nil {
		setTrailer(call, h.header)
	}
	setTrailer(call, h.trailer)
}

func setTrailer(call grpc.ServerTransportStream, md metadata.MD) {
	if call == nil || len(md) == 0 {
		return
	}
	// It fails only where the call has ended: then nobody is there to read the answer, nor an error about it.
	_ = call.SetTrailer(md)
}
