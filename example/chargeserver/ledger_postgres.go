package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

const createChargesSQL = `
create table if not exists charges (
  id          text        primary key,
  amount      bigint      not null check (amount > 0), -- in the currency's minor units
  currency    text        not null check (currency ~ '^[A-Z]{3}$'),
  description text        not null,
  status      text        not null check (status in ('captured', 'refunded')),
  created_at  timestamptz not null default now()
)`

const addChargeSQL = `
insert into charges (id, amount, currency, description, status)
values ($1, $2, $3, $4, 'captured')
returning created_at`

const selectChargesSQL = `
select id, amount, currency, description, status, created_at
from charges`

const getChargeSQL = selectChargesSQL + `
where id = $1`

const allChargesSQL = selectChargesSQL + `
order by created_at, id`

const refundChargeSQL = `
update charges set status = 'refunded'
where id = $1 and status = 'captured'
returning id, amount, currency, description, status, created_at`

// postgresLedger is a ledger in a table of its own.
//
// Querier is all that it has to do with idempotency: under a transactional claim it is the claim's transaction, in which
// the charge and the reply commit together; elsewhere it is the pool. So this ledger serves both modes.
type postgresLedger struct{ pool *pgxpool.Pool }

// newPostgresLedger makes the table where it is missing. Many servers may do so at once.
func newPostgresLedger(ctx context.Context, pool *pgxpool.Pool) (*postgresLedger, error) {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// One at a time: "if not exists" alone fails when two create at the same moment.
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('create table charges'))"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, createChargesSQL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the table charges: %w", err)
	}
	return &postgresLedger{pool: pool}, nil
}

func (l *postgresLedger) add(ctx context.Context, c *chargesv1.Charge) error {
	var created time.Time
	err := postgres.Querier(ctx, l.pool).QueryRow(ctx, addChargeSQL, c.GetId(), c.GetAmount(), c.GetCurrency(), c.GetDescription()).
		Scan(&created)
	if err != nil {
		return fmt.Errorf("add a charge: %w", err)
	}
	c.CreateTime = timestamppb.New(created)
	return nil
}

func (l *postgresLedger) get(ctx context.Context, id string) (*chargesv1.Charge, error) {
	return l.one(ctx, getChargeSQL, id)
}

func (l *postgresLedger) refund(ctx context.Context, id string) (*chargesv1.Charge, error) {
	charge, err := l.one(ctx, refundChargeSQL, id)
	if !errors.Is(err, errNoCharge) {
		return charge, err
	}
	// There is none, or it was refunded: a charge is never captured again.
	if _, err := l.get(ctx, id); err != nil {
		return nil, err
	}
	return nil, errRefunded
}

// one runs a statement that returns a charge or no row.
func (l *postgresLedger) one(ctx context.Context, sql, id string) (*chargesv1.Charge, error) {
	if strings.ContainsRune(id, 0) {
		return nil, errNoCharge // the server would not take it for text
	}
	charge, err := scanCharge(postgres.Querier(ctx, l.pool).QueryRow(ctx, sql, id))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, errNoCharge
	case err != nil:
		return nil, fmt.Errorf("read a charge: %w", err)
	}
	return charge, nil
}

func (l *postgresLedger) all(ctx context.Context) iter.Seq2[*chargesv1.Charge, error] {
	return func(yield func(*chargesv1.Charge, error) bool) {
		rows, err := postgres.Querier(ctx, l.pool).Query(ctx, allChargesSQL)
		if err != nil {
			yield(nil, fmt.Errorf("list charges: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			charge, err := scanCharge(rows)
			if !yield(charge, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, fmt.Errorf("list charges: %w", err))
		}
	}
}

func scanCharge(row pgx.Row) (*chargesv1.Charge, error) {
	var c chargesv1.Charge
	var status string
	var created time.Time
	if err := row.Scan(&c.Id, &c.Amount, &c.Currency, &c.Description, &status, &created); err != nil {
		return nil, err
	}
	c.Status = chargesv1.ChargeStatus_CHARGE_STATUS_CAPTURED
	if status == "refunded" {
		c.Status = chargesv1.ChargeStatus_CHARGE_STATUS_REFUNDED
	}
	c.CreateTime = timestamppb.New(created)
	return &c, nil
}
