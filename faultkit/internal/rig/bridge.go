package rig

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// bridge leads from a TCP port, which the proxies can dial, to the database's Unix socket. Where one side's connection
// ends, so does the other's.
type bridge struct {
	listener net.Listener
	socket   atomic.Pointer[string] // may move when the database starts again
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

func newBridge(ctx context.Context) (*bridge, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &bridge{listener: listener, conns: make(map[net.Conn]bool)}
	b.running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // closed
			}
			b.running.Go(func() { b.carry(ctx, from) })
		}
	})
	return b, nil
}

func (b *bridge) addr() string { return b.listener.Addr().String() }

func (b *bridge) carry(ctx context.Context, from net.Conn) {
	defer from.Close() //nolint:errcheck // broken or done
	to, err := new(net.Dialer).DialContext(ctx, "unix", *b.socket.Load())
	if err != nil {
		return // the database is away
	}
	defer to.Close() //nolint:errcheck // broken or done
	if !b.keep(from, to) {
		return
	}
	defer b.forget(from, to)
	ended := make(chan struct{}, 2)
	pipe := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src) // how a connection ends does not matter here
		ended <- struct{}{}
	}
	b.running.Go(func() { pipe(to, from) })
	b.running.Go(func() { pipe(from, to) })
	<-ended
}

// keep remembers connections to be closed, unless it is too late.
func (b *bridge) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		b.conns[conn] = true
	}
	return !b.closed
}

func (b *bridge) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		delete(b.conns, conn)
	}
}

func (b *bridge) close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for conn := range b.conns {
		_ = conn.Close() // broken or done
	}
	b.mu.Unlock()
	b.running.Wait()
	return err
}
