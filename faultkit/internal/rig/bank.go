package rig

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// bank is the other system that handlers call. It takes a charge once for each derived key, as such systems do.
type bank struct {
	server *http.Server
	url    string
	failed chan error

	mu      sync.Mutex
	derived map[string]map[string]bool // by the client's key: the derived keys that came for it
}

func startBank(ctx context.Context) (*bank, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &bank{url: "http://" + listener.Addr().String(), failed: make(chan error, 1), derived: make(map[string]map[string]bool)}
	b.server = &http.Server{Handler: http.HandlerFunc(b.capture), ReadHeaderTimeout: 10 * time.Second}
	go func() { b.failed <- b.server.Serve(listener) }()
	return b, nil
}

func (b *bank) capture(_ http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.derived[query.Get("key")]
	if keys == nil {
		keys = make(map[string]bool)
		b.derived[query.Get("key")] = keys
	}
	keys[query.Get("derived_key")] = true
}

// captured returns what came, by the client's key.
func (b *bank) captured() map[string]map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.derived)
}

func (b *bank) close() error {
	err := b.server.Close()
	if served := <-b.failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
