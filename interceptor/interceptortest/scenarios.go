package interceptortest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/anypb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func firstCall(b *bench) {
	a := b.call("k")
	b.requireFresh(a)
	b.requireSame(a, answerOf(charged("ch_1")))
	b.requireRuns(1)
}

func replay(b *bench) {
	told := b.call("k")
	b.answer(charged("ch_2"))
	for range 2 {
		b.requireReplay(b.call("k"), told)
	}
	b.requireRuns(1)
	if other := b.call("another"); other.Message.GetCharge().GetId() != "ch_2" {
		b.t.Errorf("another key's answer is %v", other)
	}
}

func reused(b *bench) {
	told := b.call("k")
	b.requireRefused(b.client.Create(b.ctx, []string{"k"}, request(1300)), code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
	b.requireReplay(b.call("k"), told)
	b.requireRuns(1)
}

func inProgress(b *bench) {
	goOn, answer := b.begin("k", charged("ch_1"))
	a := b.call("k")
	b.requireRefused(a, code.Code_ABORTED, idempotency.ReasonKeyInProgress)
	if a.Error != nil && !slices.ContainsFunc(a.Error.Details, isRetryInfo) {
		b.t.Errorf("it has no RetryInfo: %v", a.Error.Details)
	}
	if len(a.Metadata["retry-after"]) != 1 {
		b.t.Errorf("retry-after is %q", a.Metadata["retry-after"])
	}
	close(goOn)
	told := <-answer
	b.requireFresh(told)
	b.requireReplay(b.call("k"), told)
	b.requireRuns(1)
}

func isRetryInfo(d *anypb.Any) bool { return d.MessageIs(new(errdetails.RetryInfo)) }

func waiting(b *bench) {
	const waiters = 8
	goOn, answer := b.begin("k", charged("ch_1"))
	<-b.scoped
	answers := make(chan Answer, waiters)
	for range waiters {
		go func() { answers <- b.call("k") }()
	}
	for range waiters { // each has come to the guard
		<-b.scoped
	}
	close(goOn)
	told := <-answer
	b.requireFresh(told)
	for range waiters {
		b.requireReplay(<-answers, told)
	}
	b.requireRuns(1)
}

func released(b *bench) {
	unavailable := idempotency.Reply{Error: &idempotency.Error{Code: code.Code_UNAVAILABLE, Message: "the bank does not answer"}}
	b.answer(unavailable)
	b.requireSame(b.call("k"), answerOf(unavailable))
	b.answer(charged("ch_1"))
	told := b.call("k")
	b.requireFresh(told)
	b.requireReplay(b.call("k"), told)
	b.requireRuns(2)
}

func panics(b *bench) {
	b.handle(func(context.Context, *chargesv1.CreateChargeRequest) idempotency.Reply {
		panic("a fault of the handler's")
	})
	if a := b.call("k"); a.Error == nil {
		b.t.Errorf("a handler that panics answered %v", a.Message)
	}
	b.answer(charged("ch_1"))
	told := b.call("k")
	b.requireFresh(told)
	b.requireReplay(b.call("k"), told)
	b.requireRuns(2)
}

// The handler ends well after its client has gone; the retry finds the reply.
func clientGone(b *bench) {
	ctx, leave := context.WithCancel(b.ctx)
	running, gone := make(chan struct{}), make(chan struct{})
	var ended sync.WaitGroup
	ended.Add(1)
	b.handle(func(context.Context, *chargesv1.CreateChargeRequest) idempotency.Reply {
		defer ended.Done()
		close(running)
		<-gone
		return charged("ch_1")
	})
	answer := make(chan Answer, 1)
	go func() { answer <- b.client.Create(ctx, []string{"k"}, request(1299)) }()
	<-running
	leave()
	if b.inProcess {
		close(gone)
		<-answer
	} else {
		if a := <-answer; a.Error == nil || a.Error.Code != code.Code_CANCELLED {
			b.t.Errorf("the client that left got %v", a)
		}
		close(gone)
	}
	ended.Wait()
	for {
		a := b.call("k")
		if a.Error != nil && idempotency.ReasonOf(a.Error) == idempotency.ReasonKeyInProgress {
			continue // the attempt is being settled
		}
		b.requireReplay(a, answerOf(charged("ch_1")))
		b.requireRuns(1)
		return
	}
}

func errorWithDetails(b *bench) {
	b.answer(declined(b.t))
	told := b.call("k")
	b.requireFresh(told)
	b.requireSame(told, answerOf(declined(b.t)))
	b.requireReplay(b.call("k"), told)
	b.requireRuns(1)
}

func headerAndTrailer(b *bench) { metadata(b, charged("ch_1")) }
func errorMetadata(b *bench)    { metadata(b, declined(b.t)) }

// metadata holds that what the handler adds to the answer comes back, but for what is never kept.
func metadata(b *bench, r idempotency.Reply) {
	r = withMetadata(r)
	want := answerOf(r)
	r.Header["set-cookie"] = []string{"session=1"}
	b.answer(r)
	told := b.call("k")
	b.requireFresh(told)
	b.requireSame(told, want)
	again := b.call("k")
	b.requireReplay(again, told)
	if cookie := again.Metadata["set-cookie"]; len(told.Metadata["set-cookie"]) != 1 || len(cookie) > 0 {
		b.t.Errorf("set-cookie was %q at first, and %q in the replay", told.Metadata["set-cookie"], cookie)
	}
	b.requireRuns(1)
}

func sizeLimit(b *bench) {
	large := charged(strings.Repeat("x", 200))
	b.answer(large)
	a := b.call("k")
	b.requireFresh(a)
	if a.Message.GetCharge().GetId() != strings.Repeat("x", 200) {
		b.t.Errorf("the first caller got %v", a)
	}
	b.requireRefused(b.call("k"), code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)
	b.requireRuns(1)
}

func keyRules(b *bench) {
	b.requireRefused(b.client.Create(b.ctx, nil, request(1299)), code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyRequired)
	for _, keys := range [][]string{{"with a blank"}, {strings.Repeat("k", 256)}, {`"not closed`}, {"k1", "k2"}} {
		b.requireRefused(b.client.Create(b.ctx, keys, request(1299)), code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyInvalid)
	}
	b.requireRuns(0)
	told := b.call(strings.Repeat("k", 255))
	b.requireReplay(b.call(`"`+strings.Repeat("k", 255)+`"`), told) // the quoted form names the same key
	b.requireRuns(1)
}

func noKey(b *bench) {
	for range 2 {
		b.requireFresh(b.client.Create(b.ctx, nil, request(1299)))
	}
	b.requireRuns(2)
}

func streaming(b *bench) {
	for range 2 {
		if n, err := b.client.List(b.ctx, []string{"k"}); n != 1 || err != nil {
			b.t.Errorf("the stream brought %d charges, %v", n, err)
		}
	}
	b.requireFresh(b.call("k")) // the stream left the key alone
	b.requireRuns(1)
}
