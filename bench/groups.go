package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

// The base point: from it one condition is changed at a time.
const (
	baseCallers  = 8
	smallMessage = 100
)

// The labels of what is compared.
const (
	atBase      = "base"
	emptyTable  = "empty"
	fullTable   = "full"
	unixSocket  = "Unix socket"
	loopbackTCP = "TCP"
)

// group measures stages together, all under a database of the group's own unless conditions name another.
func (r *recording) group(ctx context.Context, name string, rounds int, all []conditions, p *progress) (_ results, err error) {
	var stages []*stage
	defer func() {
		for _, s := range stages {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	for _, c := range all {
		s, err := newStage(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		stages = append(stages, s)
	}
	return measure(ctx, r.config, name, rounds, stages, p)
}

func (r *recording) measureBase(ctx context.Context, d *database, p *progress) error {
	at, err := d.create(ctx, "base")
	if err != nil {
		return err
	}
	r.base, err = r.group(ctx, "base", r.config.rounds, []conditions{
		{label: atBase, at: at, callers: baseCallers, message: smallMessage, calls: r.config.slice, count: true},
	}, p)
	return err
}

func (r *recording) measureCallers(ctx context.Context, d *database, p *progress) error {
	at, err := d.create(ctx, "callers")
	if err != nil {
		return err
	}
	var all []conditions
	for _, n := range r.config.callers() {
		all = append(all, conditions{
			label: strconv.Itoa(n), at: at, callers: n, message: smallMessage, variants: everywhere(),
			// As many calls in a slice, whoever makes them; one caller alone would take too long for that.
			calls: min(max(r.config.slice*baseCallers/n, 4), 2*r.config.slice),
		})
	}
	r.callers, err = r.group(ctx, "callers", r.config.elsewhere(), all, p)
	return err
}

// messageSize is a size of message that is compared with others.
type messageSize struct {
	label       string
	bytes, part int // a slice has one part-th of the calls
}

func messageSizes() []messageSize {
	return []messageSize{{"100 B", smallMessage, 1}, {"4 KiB", 4 << 10, 1}, {"256 KiB", 256 << 10, 12}}
}

func (r *recording) measureMessages(ctx context.Context, d *database, p *progress) error {
	at, err := d.create(ctx, "messages")
	if err != nil {
		return err
	}
	var all []conditions
	for _, size := range messageSizes() {
		all = append(all, conditions{
			label: size.label, at: at, callers: baseCallers, message: size.bytes, calls: max(1, r.config.slice/size.part), variants: everywhere(),
		})
	}
	r.messages, err = r.group(ctx, "messages", r.config.elsewhere(), all, p)
	return err
}

func (r *recording) measureTransport(ctx context.Context, _ *database, p *progress) (err error) {
	d, err := startDatabase(ctx, pglaunch.Config{Loopback: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	const name = "transport"
	unix, err := d.create(ctx, name)
	if err != nil {
		return err
	}
	loop, err := d.loopback(ctx, name)
	if err != nil {
		return err
	}
	r.transport, err = r.group(ctx, name, r.config.elsewhere(), []conditions{
		{label: unixSocket, at: unix, callers: baseCallers, message: smallMessage, calls: r.config.slice, variants: everywhere()},
		{label: loopbackTCP, at: loop, callers: baseCallers, message: smallMessage, calls: r.config.slice, variants: everywhere()},
	}, p)
	return err
}

// measureAlone measures what is no variant.
func (r *recording) measureAlone(ctx context.Context, d *database, p *progress) (err error) {
	if !r.config.all() {
		return nil
	}
	if r.inProcess, err = measureInProcess(ctx, r.config.rounds, p); err != nil {
		return err
	}
	at, err := d.create(ctx, "alone")
	if err != nil {
		return err
	}
	for _, mode := range []string{"transactional", "leased"} {
		h, err := measureHotKey(ctx, at, mode, p)
		if err != nil {
			return fmt.Errorf("hot key: %w", err)
		}
		r.hot = append(r.hot, h)
	}
	if at, err = d.create(ctx, "sweeping"); err != nil {
		return err
	}
	const sweptPerCall = 800 // so that the sweep goes on for about as long as a slice
	r.sweeping, err = measureSweeping(ctx, at, r.config.elsewhere(), r.config.slice*sweptPerCall, r.config.slice, p)
	return err
}

func (r *recording) measureRows(ctx context.Context, d *database, p *progress) error {
	if r.config.rows == 0 {
		return nil
	}
	empty, err := d.create(ctx, emptyTable)
	if err != nil {
		return err
	}
	full, err := d.create(ctx, fullTable)
	if err != nil {
		return err
	}
	p.say("loading %d rows", r.config.rows)
	if err := fill(ctx, full, r.config.rows, "1 day"); err != nil {
		return err
	}
	r.rows, err = r.group(ctx, "rows", r.config.elsewhere(), []conditions{
		{label: emptyTable, at: empty, callers: baseCallers, message: smallMessage, calls: r.config.slice, variants: everywhere()},
		{label: fullTable, at: full, callers: baseCallers, message: smallMessage, calls: r.config.slice, variants: everywhere()},
	}, p)
	return err
}
