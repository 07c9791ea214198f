package main

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

type (
	createRequest  = *connect.Request[chargesv1.CreateChargeRequest]
	createResponse = *connect.Response[chargesv1.CreateChargeResponse]
	createFunc     = func(context.Context, createRequest) (createResponse, error)
)

// header carries the key.
const header = "Idempotency-Key"

// What the handlers send. A row of theirs holds what the guard's own rows hold.
const (
	createCharges = "create table charges (id text primary key, amount bigint not null, currency text not null)"
	insertCharge  = "insert into charges (id, amount, currency) values ($1, $2, $3)"
	insertKey     = `insert into idempotency_keys (scope, key, procedure, state, token, attempt, request_hash, code, response_body,
		response_bytes, lease_until, completed_at, expires_at)
		values ('', $1, '/charges.v1.ChargeService/CreateCharge', $2, '3c5f2c52-6ad5-43a8-9d7e-0f8f2f1d7d11', 1,
		'v1:sha256:0000000000000000000000000000000000000000000000000000000000000000', $3, $4::jsonb, $5, $6, now(),
		now() + interval '1 day')`
	insertFreeKey = insertKey + " on conflict (scope, key) do nothing"
	updateKey     = `update idempotency_keys set state = 'completed', code = 'OK', response_body = $2::jsonb, response_bytes = $3,
		lease_until = null, completed_at = now() where scope = '' and key = $1`
	selectKey = "select response_bytes from idempotency_keys where scope = '' and key = $1"
)

// byHand has the handlers. Those that the guard does not guard keep their keys themselves.
type byHand struct{ pool *pgxpool.Pool }

func keyOf(req createRequest) string { return req.Header().Get(header) }

// charge is what a handler has to insert for a request, and its answer.
func charge(req createRequest) (args []any, res createResponse) {
	id := "ch_" + keyOf(req)
	return []any{id, req.Msg.GetAmount(), req.Msg.GetCurrency()}, connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{
		Id: id, Amount: req.Msg.GetAmount(), Currency: req.Msg.GetCurrency(), Description: req.Msg.GetDescription(),
		Status: chargesv1.ChargeStatus_CHARGE_STATUS_CAPTURED, CreateTime: timestamppb.Now(),
	}})
}

// forms are an answer as JSON and in protobuf's wire form, which are both kept.
func forms(res createResponse) (body, bytes []byte, err error) {
	body, err = protojson.Marshal(res.Msg)
	if err != nil {
		return nil, nil, err
	}
	bytes, err = proto.Marshal(res.Msg)
	return body, bytes, err
}

// nothing answers without any work.
func (byHand) nothing(_ context.Context, req createRequest) (createResponse, error) {
	_, res := charge(req)
	return res, nil
}

// bare has its own transaction, and no key.
func (h byHand) bare(ctx context.Context, req createRequest) (createResponse, error) {
	args, res := charge(req)
	return res, pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertCharge, args...)
		return err
	})
}

// leastPlain inserts charge and finished key in one transaction, as one writes it: four flights.
func (h byHand) leastPlain(ctx context.Context, req createRequest) (createResponse, error) {
	args, res := charge(req)
	return res, pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertCharge, args...); err != nil {
			return err
		}
		body, bytes, err := forms(res)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, insertKey, keyOf(req), "completed", "OK", body, bytes, nil)
		return err
	})
}

// leastPipelined does the same with BEGIN and COMMIT in the flights of the inserts: two flights.
func (h byHand) leastPipelined(ctx context.Context, req createRequest) (createResponse, error) {
	args, res := charge(req)
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	begin := new(pgx.Batch)
	begin.BeginTx(pgx.TxOptions{})
	begin.Queue(insertCharge, args...)
	if err := conn.SendBatch(ctx, begin).Close(); err != nil {
		return nil, err
	}
	body, bytes, err := forms(res)
	if err != nil {
		return nil, err
	}
	end := new(pgx.Batch)
	end.Queue(insertKey, keyOf(req), "completed", "OK", body, bytes, nil)
	end.Queue("commit")
	return res, conn.SendBatch(ctx, end).Close()
}

// pattern is the plain pattern: claim, work, store the answer, each committed by itself.
func (h byHand) pattern(ctx context.Context, req createRequest) (createResponse, error) {
	return h.claimed(ctx, req, insertKey)
}

// patternOnConflict is the same with a claim that does not fail where the key is taken, and asks whether it won.
func (h byHand) patternOnConflict(ctx context.Context, req createRequest) (createResponse, error) {
	return h.claimed(ctx, req, insertFreeKey)
}

func (h byHand) claimed(ctx context.Context, req createRequest, claim string) (createResponse, error) {
	tag, err := h.pool.Exec(ctx, claim, keyOf(req), "in_progress", nil, nil, nil, time.Now().Add(time.Minute))
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() != 1 {
		return nil, connect.NewError(connect.CodeAborted, errors.New("the key is taken"))
	}
	args, res := charge(req)
	if _, err := h.pool.Exec(ctx, insertCharge, args...); err != nil {
		return nil, err
	}
	body, bytes, err := forms(res)
	if err != nil {
		return nil, err
	}
	_, err = h.pool.Exec(ctx, updateKey, keyOf(req), body, bytes)
	return res, err
}

// stored answers with what is stored for a key.
func (h byHand) stored(ctx context.Context, req createRequest) (createResponse, error) {
	var bytes []byte
	if err := h.pool.QueryRow(ctx, selectKey, keyOf(req)).Scan(&bytes); err != nil {
		return nil, err
	}
	res := connect.NewResponse(new(chargesv1.CreateChargeResponse))
	return res, proto.Unmarshal(bytes, res.Msg)
}

// guarded does the work alone: the key is the guard's.
func (h byHand) guarded(ctx context.Context, req createRequest) (createResponse, error) {
	args, res := charge(req)
	_, err := postgres.Querier(ctx, h.pool).Exec(ctx, insertCharge, args...)
	return res, err
}

// insertRow inserts a finished row and nothing else.
func (h byHand) insertRow(ctx context.Context, key string, body, bytes []byte) error {
	_, err := h.pool.Exec(ctx, insertKey, key, "completed", "OK", body, bytes, nil)
	return err
}

// selectRow reads a finished row.
func (h byHand) selectRow(ctx context.Context, key string) error {
	var bytes []byte
	return h.pool.QueryRow(ctx, selectKey, key).Scan(&bytes)
}
