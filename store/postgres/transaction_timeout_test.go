package postgres_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// Where the server can limit a transaction as a whole, which PostgreSQL can from 17 on, the claim has it do so, and only
// ever lowers what the caller has set; where it cannot, the claim wins all the same.
func TestTransactionTimeout(t *testing.T) {
	set, want := []string{""}, []string{""} // nothing is set, and there is nothing to read
	if queryOne[int](t, newPool(t), "select current_setting('server_version_num')::integer") >= 170000 {
		set, want = []string{"0", "1h", "15s"}, []string{"20s", "20s", "15s"}
	}
	for i, value := range set {
		for execName, execMode := range execModes {
			t.Run(cmp.Or(value, "no such setting")+"/"+execName, func(t *testing.T) {
				opts := []func(*pgxpool.Config){inExecMode(execMode), maxConns(2)}
				if value != "" {
					opts = append(opts, setting("transaction_timeout", value))
				}
				s := newStore(t, "transactional", newPool(t, opts...))
				c := newClaim()
				c.Lease = 20 * time.Second
				a := win(t, s, c)
				if got := transactionTimeout(t, a); got != want[i] {
					t.Errorf("transaction_timeout is %q, want %q", got, want[i])
				}
				complete(t, a, done("reply"))
			})
		}
	}
}

// transactionTimeout reads what holds in an attempt's transaction; "" where the server knows no such setting.
func transactionTimeout(t *testing.T, a store.Attempt) (value string) {
	t.Helper()
	tx, _ := postgres.TxFrom(a.Context(t.Context()))
	err := tx.QueryRow(t.Context(), "select coalesce(current_setting('transaction_timeout', true), '')").Scan(&value)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
