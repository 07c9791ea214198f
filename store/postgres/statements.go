package postgres

import "strings"

// statements are the store's SQL. Every column is named, so that one added to the table live breaks no cached plan.
// Durations are sent as intervals; times are the server's.
type statements struct {
	look, lookOther               string
	lookMany, locked              string
	claim, takeOver               string
	complete, release             string
	tryLock, waitForLock          string
	removeStale, insert           string
	forget, sweep, renew          string
	savepoint, toSavepoint, leave string
}

func newStatements(n names, savepoint string) statements {
	put := strings.NewReplacer("{table}", n.table, "{savepoint}", savepoint, "{columns}", foundColumns,
		"{durable}", durable).Replace
	return statements{
		look:        put(lookSQL),
		lookOther:   put(lookOtherSQL),
		lookMany:    put(lookManySQL),
		locked:      lockedSQL,
		claim:       put(claimSQL),
		takeOver:    put(takeOverSQL),
		complete:    put(completeSQL),
		release:     put(releaseSQL),
		tryLock:     put(tryLockSQL),
		waitForLock: put(waitForLockSQL),
		removeStale: put(removeStaleSQL),
		insert:      put(insertSQL),
		forget:      put(forgetSQL),
		sweep:       put(sweepSQL),
		renew:       put(renewSQL),
		savepoint:   put("savepoint {savepoint}"),
		toSavepoint: put("rollback to savepoint {savepoint}"),
		leave:       put("release savepoint {savepoint}"),
	}
}

// foundColumns are what scanFound reads, with the server's time, by which alone the row's are judged.
const foundColumns = `
  k.state, k.token, k.attempt, k.request_hash, k.procedure, k.expires_at, k.lease_until, clock_timestamp(),
  k.code, k.response_bytes`

const lookSQL = `
select {columns}
from {table} k
where k.scope = $1 and k.key = $2`

// lookOtherSQL finds nothing where the claim before it has just won: its row need not be read to be known.
const lookOtherSQL = lookSQL + ` and k.token <> $3::uuid`

// lockedSQL tells which of the locks are held in this database: a transactional attempt in flight shows itself by nothing
// else. An advisory lock's number stands in two halves.
const lockedSQL = `
select want.n
from unnest($1::bigint[]) with ordinality as want (lock, n)
join pg_locks l on (l.classid::bigint << 32) | l.objid::bigint = want.lock
where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
  and l.database = (select oid from pg_database where datname = current_database())`

const lookManySQL = `
select want.n, {columns}
from unnest($1::text[], $2::text[]) with ordinality as want (scope, key, n)
join {table} k on k.scope = want.scope and k.key = want.key`

// durable makes the transaction's commit wait for its disk where the connection does not: a claim or a completion that a
// crash takes back, after it was acknowledged, would let the work run twice. It is always true.
const durable = `
case when current_setting('synchronous_commit') = 'off'
  then set_config('synchronous_commit', 'on', true) <> '' else true end`

// The lock is taken and given back within the statement's own transaction. A transactional attempt holds it until it ends,
// and so keeps leased claims away while its row cannot be seen.
const claimSQL = `
insert into {table} (scope, key, procedure, state, token, attempt, request_hash, lease_until, created_at, expires_at)
select $1::text, $2::text, $3::text, 'in_progress', $4::uuid, 1, $5::text,
  now() + $6::interval, now(), now() + $7::interval
where pg_try_advisory_xact_lock($8::bigint) and {durable}
on conflict (scope, key) do nothing`

const takeOverSQL = `
update {table} k
set state = 'in_progress', token = $4::uuid, request_hash = $5::text, procedure = $3::text,
  attempt = case when k.expires_at <= now() then 1 else k.attempt + 1 end,
  created_at = case when k.expires_at <= now() then now() else k.created_at end,
  lease_until = now() + $6::interval,
  expires_at = now() + $7::interval,
  completed_at = null, code = null, response_body = null, response_bytes = null
from (select pg_try_advisory_xact_lock($8::bigint) as held, {durable} as durable) gate
where gate.held and gate.durable and k.scope = $1 and k.key = $2 and k.token = $9::uuid
  and coalesce(k.lease_until, k.expires_at) <= now()`

// The token alone fences: a completion whose acknowledgement was lost may be sent again.
const completeSQL = `
update {table} k
set state = $4::text, code = $5::text, response_body = $6::jsonb, response_bytes = $7::bytea,
  lease_until = null, completed_at = now(),
  expires_at = greatest(k.expires_at, now() + $8::interval)
where k.scope = $1 and k.key = $2 and k.token = $3::uuid and {durable}`

const releaseSQL = `
delete from {table} k
where k.scope = $1 and k.key = $2 and k.token = $3::uuid and k.state = 'in_progress'`

// tryLockSQL begins a transactional claim. The key's lock is not tried where a row already says what the call will be told,
// so that replays do not hold it.
//
// With it go limits for the transaction, so that a server that is paused or gone holds no key past its lease: what a
// statement waits for a lock, what the transaction idles, and from PostgreSQL 17 on what it lasts, $4 at most; and how often
// a backend that is busy looks whether its client is still there, $5, which Linux alone can. A limit that is lower already
// stays; zero is none. A setting that this server does not know is null.
const tryLockSQL = `
select
  case when exists (
    select from {table} k
    where k.scope = $1 and k.key = $2 and coalesce(k.lease_until, k.expires_at) > clock_timestamp()
  ) then false else pg_try_advisory_xact_lock($3::bigint) end,
  case when current_setting('lock_timeout') = '0' or current_setting('lock_timeout')::interval > $4::text::interval
    then set_config('lock_timeout', $4, true) end,
  case when current_setting('idle_in_transaction_session_timeout') = '0'
      or current_setting('idle_in_transaction_session_timeout')::interval > $4::text::interval
    then set_config('idle_in_transaction_session_timeout', $4, true) end,
  case when current_setting('transaction_timeout', true) = '0'
      or current_setting('transaction_timeout', true)::interval > $4::text::interval
    then set_config('transaction_timeout', $4, true) end,
  case when version() like '%linux%' and (current_setting('client_connection_check_interval', true) = '0'
      or current_setting('client_connection_check_interval', true)::interval > $5::text::interval)
    then set_config('client_connection_check_interval', $5, true) end`

// waitForLock returns once nobody holds the lock, so that whoever held it has ended; it waits at most $2, such as 5000ms.
const waitForLockSQL = `
select pg_advisory_xact_lock($1::bigint)
from (select set_config('lock_timeout', $2::text, true) as bound) gate
where gate.bound <> ''`

const removeStaleSQL = `
delete from {table} k
where k.scope = $1 and k.key = $2 and k.token = $3::uuid
  and coalesce(k.lease_until, k.expires_at) <= now()
  and pg_try_advisory_xact_lock($4::bigint)
returning case when k.expires_at <= now() then 1 else k.attempt + 1 end`

// A plain insert, not "on conflict do nothing": it stands in one flight with the COMMIT, and only its failure keeps the
// COMMIT from being carried out.
const insertSQL = `
insert into {table} (scope, key, procedure, state, token, attempt, request_hash, code, response_body, response_bytes,
  created_at, completed_at, expires_at)
values ($1::text, $2::text, $3::text, $4::text, $5::uuid, $6::integer, $7::text, $8::text, $9::jsonb, $10::bytea,
  now(), clock_timestamp(),
  greatest(now() + $11::interval, clock_timestamp() + $12::interval))`

const forgetSQL = `
delete from {table} k
where k.scope = $1 and k.key = $2`

// The rows' places are collected first, so that the delete goes to them and nowhere else. A row that another sweep holds
// is passed over. What comes back is where this batch began: the next one reads its dead entries once more, while their
// pages are in memory, and so has the index mark them as dead. Whoever starts from the beginning then passes over them
// without a visit to the table.
const sweepSQL = `
with swept as (
  delete from {table} k
  where k.ctid = any (array(
    select e.ctid
    from {table} e
    where e.expires_at >= $1::timestamptz and e.expires_at <= now() and (e.lease_until is null or e.lease_until <= now())
    order by e.expires_at
    limit $2::bigint
    for update skip locked))
  returning k.expires_at
)
select count(*), coalesce(min(expires_at), $1::timestamptz) from swept`

// A row that is locked keeps its lease. Its time is pushed out with the lease, so that a live claim never stands behind a
// sweep's cursor.
const renewSQL = `
with held as (
  select h.scope, h.key, h.token from unnest($1::text[], $2::text[], $3::uuid[]) as h (scope, key, token)
), free as (
  select k.scope, k.key
  from {table} k join held using (scope, key, token)
  where k.state = 'in_progress'
  for update of k skip locked
), renewed as (
  update {table} k
  set lease_until = now() + $4::interval, expires_at = greatest(k.expires_at, now() + 2 * $4::interval)
  from free
  where k.scope = free.scope and k.key = free.key
)
select held.token
from held
where not exists (
  select from {table} k
  where k.scope = held.scope and k.key = held.key and k.token = held.token and k.state = 'in_progress')`
