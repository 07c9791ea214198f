-- One row per key. What a completion writes is not indexed, so that it can be a HOT update.
create table if not exists {table} (
  scope          text        collate "C" not null,
  key            text        collate "C" not null,
  procedure      text        not null,
  state          text        collate "C" not null,
  token          uuid        not null, -- fences the attempt that holds, held or completed the key
  attempt        integer     not null, -- counts the runs since the key was last absent, from 1
  request_hash   text        collate "C" not null, -- version and algorithm stand in front of the digest
  lease_until    timestamptz, -- while in progress
  code           text        collate "C", -- google.rpc.Code of the reply, once completed
  response_body  jsonb, -- the reply for people and queries; null where jsonb cannot hold it
  response_bytes bytea, -- the reply's exact form, from which a replay is made
  created_at     timestamptz not null default now(),
  completed_at   timestamptz,
  expires_at     timestamptz not null,
  primary key (scope, key),
  check (state in ('in_progress', 'completed', 'not_kept')),
  check ((state = 'in_progress') = (lease_until is not null)),
  check ((state = 'in_progress') = (code is null))
) with (
  -- Every row dies once, when it is swept: autovacuum comes for its room once a twentieth of the table is dead. The
  -- default, a fifth, would let table and indexes grow by as much.
  autovacuum_vacuum_scale_factor = 0.05,
  -- Room for a completion on its claim's page, so that it is a HOT update also where rows fill places that were swept.
  fillfactor = 85
);

-- For the sweep.
create index if not exists {index} on {table} (expires_at);
