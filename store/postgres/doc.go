// Package postgres keeps keys in a PostgreSQL table, through pgx.
//
// # Two ways to hold a claim
//
// [NewTransactional]: the handler's own writes and the reply commit in one transaction, so an effect in that database
// happens exactly once. The handler takes the transaction from its context with [Querier] or [TxFrom]; one connection is
// held while it runs. The claim is a transaction-scoped advisory lock, so a duplicate learns at once that the key is in
// progress, and a crash leaves nothing behind.
//
// [New]: leased. The claim commits before the handler runs, and the reply is stored by an UPDATE that the attempt's token
// fences. No connection is held meanwhile, which suits slow handlers and calls to other systems. After a crash the work
// may run again, once the lease is over: at least once, and at most one attempt whose token the table accepts.
//
// Both use the same table and the same locks, so a server may be changed from one to the other while others still run.
//
// # What it needs
//
// PostgreSQL 13 or newer, with a database in UTF-8; from 17 on a transactional attempt is limited by transaction_timeout as
// well. Every pgx exec mode works, and so does a transaction-pooling proxy, with an exec mode that the proxy allows: no
// session state, LISTEN or session-level lock is used. PgBouncer before 1.21 allows cache_describe, exec and
// simple_protocol, not pgx's default, cache_statement.
//
// The table is made by [Store.Migrate], or by a migration tool of your own from [Migrations].
//
// # What it costs
//
// Flights to the database, warm: leased, one to claim and one to complete; transactional, one to claim (it begins the
// transaction too) and one to complete (it commits too). A replay or a refusal takes one. A take-over takes one more. Exec
// mode describe_exec adds one to each.
//
// The table's storage parameters, which a migration of your own should keep, have autovacuum come once a twentieth of
// the rows are dead, and leave room on each page for a completion.
package postgres
