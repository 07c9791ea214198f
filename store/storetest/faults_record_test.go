package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// shows is a store that shows its records changed.
func shows(name string, change func(*store.Found), fails ...string) fault {
	return broken(name, func(f *faulty) {
		f.show = func(found store.Found) store.Found {
			if found.State == store.Completed || found.State == store.NotKept {
				change(&found)
			}
			return found
		}
	}, fails...)
}

// keepsRecords is a store that remembers the records it was given, as remember returns them, and shows those.
func keepsRecords(name string, remember func(store.Record) store.Record, fails ...string) fault {
	return broken(name, func(f *faulty) {
		var mu sync.Mutex
		records := map[store.ID]store.Record{}
		f.spoil = func(_ context.Context, c store.Claim, a *faultyAttempt) {
			sound := a.complete
			a.complete = func(ctx context.Context, r store.Record, keepWrites bool) error {
				mu.Lock()
				records[c.ID] = remember(r)
				mu.Unlock()
				return sound(ctx, r, keepWrites)
			}
		}
		f.show = func(found store.Found) store.Found {
			mu.Lock()
			defer mu.Unlock()
			if r, ok := records[found.ID]; ok && found.State != store.Absent {
				found.Record = r
			}
			return found
		}
	}, fails...)
}

func recordFaults() []fault {
	return []fault{
		shows("a byte of the reply is changed", func(f *store.Found) {
			if n := len(f.Record.Reply); n > 0 {
				f.Record.Reply[n-1] ^= 1
			}
		},
			"Claim/completed key is found with its record",
			"Record/reply is kept byte for byte",
			"Record/large reply is kept byte for byte",
			"Attempt/completes after the call's context ended",
		),
		shows("large replies are cut", func(f *store.Found) { f.Record.Reply = f.Record.Reply[:min(len(f.Record.Reply), 1<<20-1)] },
			"Record/large reply is kept byte for byte"),
		shows("empty replies are null", func(f *store.Found) {
			if len(f.Record.Reply) == 0 {
				f.Record.Reply = []byte("null")
			}
		}, "Record/empty reply is kept"),
		shows("what was not kept is completed", func(f *store.Found) { f.State, f.Record.State = store.Completed, store.Completed },
			"Claim/key not kept is found",
			"Look/expired key is in the state it was in",
			"Record/every code is kept where the reply is not",
		),
		shows("a code is taken for another", func(f *store.Found) {
			if f.Record.Code == code.Code_DATA_LOSS {
				f.Record.Code = code.Code_INTERNAL
			}
		}, "Record/every code is kept", "Record/every code is kept where the reply is not"),
		keepsRecords("the caller's slice is kept", func(r store.Record) store.Record {
			r.Readable = nil
			return r
		}, "Record/reply is kept apart from the slice it came in"),
		keepsRecords("the kept slice is handed out", func(r store.Record) store.Record {
			r.Readable = nil
			r.Reply = bytes.Clone(r.Reply)
			return r
		}, "Record/reply that was found belongs to the caller"),
		keepsRecords("the readable form is returned", func(r store.Record) store.Record { return r },
			"Record/readable form is not returned"),
		broken("a readable form is required", func(f *faulty) {
			f.spoil = func(_ context.Context, _ store.Claim, a *faultyAttempt) {
				sound := a.complete
				a.complete = func(ctx context.Context, r store.Record, keepWrites bool) error {
					if r.Readable != nil {
						text, err := r.Readable.MarshalJSON()
						if err != nil {
							return err
						}
						if !json.Valid(text) || bytes.Contains(text, []byte(`\u0000`)) || len(text) > 1000 {
							return errors.New("the column cannot hold it")
						}
					}
					return sound(ctx, r, keepWrites)
				}
			}
		}, "Record/readable form that cannot be had is done without"),
	}
}
