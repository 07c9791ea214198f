package postgres_test

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// wire watches and breaks a pool's connections where they meet the network.
type wire struct {
	mu      sync.Mutex
	flights int
	cut     cut
}

// cut says what happens to the next flight.
type cut int

const (
	whole        cut = iota
	beforeServer     // it never reaches the server
	midway           // the server gets half of it
	beforeAnswer     // the server gets it, and its answer never comes back
)

// on is an option of newPool.
func (w *wire) on(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wireConn{Conn: conn, wire: w, reading: true}, nil
	}
}

// counted returns how many flights f took, on all connections.
func (w *wire) counted(f func()) int {
	w.mu.Lock()
	before := w.flights
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flights - before
}

// next breaks the next flight.
func (w *wire) next(c cut) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = c
}

// wireConn counts a flight whenever something is sent after something was read.
type wireConn struct {
	net.Conn
	wire    *wire
	reading bool
	lost    bool
}

var errCut = errors.New("the connection was cut")

func (c *wireConn) Write(b []byte) (int, error) {
	c.wire.mu.Lock()
	first := c.reading
	c.reading = false
	do := whole
	if first {
		c.wire.flights++
		do, c.wire.cut = c.wire.cut, whole
	}
	c.lost = c.lost || do != whole
	c.wire.mu.Unlock()
	switch do {
	case beforeServer:
		return 0, errors.Join(errCut, c.Close())
	case midway:
		n, err := c.Conn.Write(b[:len(b)/2])
		return n, errors.Join(errCut, err, c.Close())
	default:
		return c.Conn.Write(b)
	}
}

func (c *wireConn) Read(b []byte) (int, error) {
	c.wire.mu.Lock()
	c.reading = true
	lost := c.lost
	c.wire.mu.Unlock()
	n, err := c.Conn.Read(b)
	if lost {
		// The answer came this far, so the server has acted; it goes no further.
		return 0, errors.Join(errCut, c.Close())
	}
	return n, err
}
