package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between one target and the database.
type proxy struct {
	*toxiproxy.Proxy

	names atomic.Int64
}

func startProxy(name, upstream string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{Proxy: toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("start the proxy %s: %w", name, err)
	}
	return p, nil
}

// Direction is where data goes.
type Direction string

// Directions of a proxy's data.
const (
	ToDatabase   Direction = "upstream"
	FromDatabase Direction = "downstream"
)

// Cut closes all connections, and takes no others until the time away is over.
func (p *proxy) Cut(away time.Duration) error {
	p.Stop()
	<-time.After(away)
	if err := p.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		return fmt.Errorf("start the proxy again: %w", err)
	}
	return nil
}

// CutNext closes each connection as soon as more than a number of bytes go in a direction, which is in the middle of a
// message or between a message and its answer, as long as d lasts.
func (p *proxy) CutNext(ctx context.Context, dir Direction, bytes int, d time.Duration) error {
	return p.with(ctx, "limit_data", dir, map[string]int{"bytes": bytes}, d)
}

// Stall holds everything back that goes in a direction as long as d lasts, and delivers it then, even what was sent by a
// side that has given up meanwhile.
func (p *proxy) Stall(ctx context.Context, dir Direction, d time.Duration) error {
	return p.with(ctx, "latency", dir, map[string]int{"latency": int(time.Hour / time.Millisecond)}, d)
}

// with has a toxic in place as long as d lasts.
func (p *proxy) with(ctx context.Context, kind string, dir Direction, attributes map[string]int, d time.Duration) error {
	name := fmt.Sprint(kind, p.names.Add(1))
	toxic, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": dir, "attributes": attributes})
	if err != nil {
		return err
	}
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(string(toxic))); err != nil {
		return fmt.Errorf("add the toxic %s: %w", kind, err)
	}
	<-time.After(d)
	if err := p.Toxics.RemoveToxic(ctx, name); err != nil {
		return fmt.Errorf("remove the toxic %s: %w", kind, err)
	}
	return nil
}
