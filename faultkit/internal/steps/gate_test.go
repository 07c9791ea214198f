package steps_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// gate stands between a server and the database, and holds one flight or its answer. Nothing passes on that connection
// from then on, until the server's end ends it on the database's side too.
type gate struct {
	network, database string // to dial

	mu    sync.Mutex    // of what holdNext sets
	count int           // of flights from then on
	at    int           // the flight to hold
	what  held          // of that flight
	held  chan struct{} // closed once it is held
}

// held says what a gate holds of a flight.
type held int

const (
	flightItself held = iota // it never reaches the database
	itsAnswer                // the database has carried it out, and the server does not hear of it
)

// newGate makes a gate before the database at databaseURL, and returns the URL of its other side. The servers that use it
// have to end before the test does.
func newGate(t *testing.T, databaseURL string) (g *gate, throughIt string) {
	t.Helper()
	config, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g = new(gate)
	g.network, g.database = pgconn.NetworkAddress(config.Host, config.Port)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			server, err := listener.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { g.carry(t.Context(), server) })
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(config.User, config.Password), Host: listener.Addr().String(),
		Path: config.Database, RawQuery: url.Values{"sslmode": {"disable"}}.Encode(),
	}
	return g, u.String()
}

// holdNext holds the n-th flight from now on, or its answer, and returns what is closed once it is held; none where n is 0.
func (g *gate) holdNext(n int, what held) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count, g.at, g.what, g.held = 0, n, what, make(chan struct{})
	return g.held
}

// counted returns how many flights there were since holdNext was called.
func (g *gate) counted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// countFlight counts a flight, and reports whether something of it is to be held.
func (g *gate) countFlight() (hold bool, what held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count++
	return g.count == g.at, g.what
}

// carry leads one connection to the database, and ends it on both sides when it ends on one.
func (g *gate) carry(ctx context.Context, server net.Conn) {
	defer server.Close() //nolint:errcheck // broken or done
	database, err := new(net.Dialer).DialContext(ctx, g.network, g.database)
	if err != nil {
		return // the server sees that it is not connected
	}
	var holdAnswer atomic.Bool
	var answering sync.WaitGroup
	answering.Go(func() {
		defer server.Close() //nolint:errcheck // broken or done
		g.carryAnswers(server, database, &holdAnswer)
	})
	g.carryFlights(server, database, &holdAnswer)
	_ = database.Close() // whether or not it has ended already
	answering.Wait()
}

// Types of messages after which an answer is waited for.
const (
	typeQuery    = 'Q'
	typeSync     = 'S'
	typePassword = 'p' // while the connection starts: no flight
)

// carryFlights carries all that a server sends, a flight at a time, until it ends.
func (g *gate) carryFlights(server, database net.Conn, holdAnswer *atomic.Bool) {
	from := bufio.NewReader(server)
	flight, err := readMessage(from, make([]byte, 4)) // the first of a connection has no type
	for err == nil {
		if _, err := database.Write(flight); err != nil {
			return
		}
		var last byte
		for flight = nil; err == nil && last != typeQuery && last != typeSync && last != typePassword; {
			var message []byte
			if message, err = readMessage(from, make([]byte, 5)); err == nil {
				last = message[0]
				flight = append(flight, message...)
			}
		}
		if err != nil || last == typePassword {
			continue
		}
		switch hold, what := g.countFlight(); {
		case hold && what == flightItself:
			close(g.held)
			_, _ = io.Copy(io.Discard, from) // until the server ends, however it does
			return
		case hold:
			holdAnswer.Store(true)
		}
	}
}

// typeReady is the type of the message that ends an answer.
const typeReady = 'Z'

// carryAnswers carries all that the database sends until it ends, and from an answer to be held on nothing more.
func (g *gate) carryAnswers(server, database net.Conn, hold *atomic.Bool) {
	from := bufio.NewReader(database)
	for {
		message, err := readMessage(from, make([]byte, 5))
		switch {
		case err != nil:
			return
		case !hold.Load():
			if _, err := server.Write(message); err != nil {
				return
			}
		case message[0] == typeReady:
			close(g.held)
		}
	}
}

// readMessage reads a message of the protocol: a head, that ends in the length of all but the type, and the rest.
func readMessage(from io.Reader, head []byte) ([]byte, error) {
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	rest := make([]byte, max(4, binary.BigEndian.Uint32(head[len(head)-4:]))-4)
	_, err := io.ReadFull(from, rest)
	return append(head, rest...), err
}
