// Package store is the contract between the guard (package idempotency) and whatever remembers keys.
//
// A store holds one row per [ID]. A row is claimed by an attempt, and settled by it: completed with a [Record] that later
// calls replay, or released, so that the next call runs.
//
//	absent ──claim──▶ in progress ──complete──▶ completed ──expires──▶ absent
//	   ▲                 │   ▲ │
//	   └────release──────┘   └─┘ lease over: another attempt takes over, with a token of its own
//
// Two stores come with the module: store/postgres, leased and transactional, and store/memory. Package storetest has the
// conformance suite that both pass; run it on a store of your own.
//
// # Rules that every store keeps
//
// At most one attempt holds a key. An attempt is fenced by its [Token]: once another attempt's token, or none, stands in
// the row, nothing that the first attempt does changes the row.
//
// Times are the store's own clock. A caller never sends a point in time, only durations.
//
// A store compares no request hashes and knows no policy: the guard does that with what the store found.
package store
