package postgres_test

import (
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
)

// cost is what a step of a call takes of the database. No machine is so slow that it changes.
type cost struct {
	flights    int // to the answer, warm; each one that has arguments takes one more in describe_exec
	statements int // of those flights: each of a batch is one, and so are BEGIN, SAVEPOINT and COMMIT
	behind     int // rollbacks that follow behind the answer, each a statement and a flight of its own

	inserted, updated, deleted int // row versions of the keys' table

	xids int // transaction ids of transactions that ended; the savepoint within which a handler writes has its own
}

// costs are the price of each step, by mode. A key that the store has lately settled or seen settled is looked at before it
// is claimed; "elsewhere" is another process, whose keys the store meets for the first time.
var costs = map[string]map[string]cost{
	"leased": {
		"claim":                         {flights: 1, statements: 2, inserted: 1, xids: 1},
		"claim what was forgotten":      {flights: 2, statements: 3, inserted: 1, xids: 1},
		"complete":                      {flights: 1, statements: 1, updated: 1, xids: 1},
		"complete with an error":        {flights: 1, statements: 1, updated: 1, xids: 1},
		"release":                       {flights: 1, statements: 1, deleted: 1, xids: 1},
		"replay":                        {flights: 1, statements: 1},
		"replay elsewhere":              {flights: 1, statements: 2},
		"replay in the other mode":      {flights: 1, statements: 2},
		"replay again":                  {flights: 1, statements: 1},
		"refusal":                       {flights: 1, statements: 1},
		"refusal elsewhere":             {flights: 1, statements: 2},
		"refusal in the other mode":     {flights: 1, statements: 2},
		"in progress":                   {flights: 1, statements: 2},
		"in progress elsewhere":         {flights: 1, statements: 2},
		"in progress in the other mode": {flights: 1, statements: 2},
		"lease over":                    {flights: 1, statements: 2},
		"take over":                     {flights: 1, statements: 2, updated: 1, xids: 1},
		"complete after take-over":      {flights: 1, statements: 1, updated: 1, xids: 1},
		"fenced":                        {flights: 1, statements: 1},
		"look":                          {flights: 1, statements: 2},
		"look at many":                  {flights: 1, statements: 2},
		"renew many":                    {flights: 1, statements: 1, updated: many, xids: 1},
		"forget":                        {flights: 1, statements: 1, deleted: 1, xids: 1},
	},
	"transactional": {
		"claim":                         {flights: 1, statements: begins},
		"claim what was forgotten":      {flights: 2, statements: 1 + begins},
		"complete":                      {flights: 1, statements: 3, inserted: 1, xids: 1},
		"complete with writes":          {flights: 1, statements: 3, inserted: 1, xids: 2},
		"complete with an error":        {flights: 1, statements: 4, inserted: 1, xids: 1},
		"release":                       {flights: 1, statements: 1},
		"replay":                        {flights: 1, statements: 1},
		"replay elsewhere":              {flights: 1, statements: begins, behind: 1},
		"replay in the other mode":      {flights: 1, statements: begins, behind: 1},
		"replay again":                  {flights: 1, statements: 1},
		"refusal":                       {flights: 1, statements: 1},
		"refusal elsewhere":             {flights: 1, statements: begins, behind: 1},
		"refusal in the other mode":     {flights: 1, statements: begins, behind: 1},
		"in progress":                   {flights: 1, statements: begins, behind: 1},
		"in progress elsewhere":         {flights: 1, statements: begins, behind: 1},
		"in progress in the other mode": {flights: 1, statements: begins, behind: 1},
		"lease over":                    {flights: 2, statements: begins + 1}, // the lock is given back before the answer
		"take over":                     {flights: 1, statements: begins + 1, deleted: 1},
		"complete after take-over":      {flights: 1, statements: 3, inserted: 1, xids: 1},
		"look":                          {flights: 1, statements: 2},
		"look at many":                  {flights: 1, statements: 2},
		"forget":                        {flights: 1, statements: 1, deleted: 1, xids: 1},
	},
}

// begins is how many statements begin a transaction that is a claim: BEGIN, the lock, the look and the savepoint.
const begins = 4

// many is how many keys a look or a renewal names, where it names many.
const many = 20

// Each step of a call takes its flights, statements and row versions, in each exec mode; a call that writes nothing takes no
// transaction id.
func TestCosts(t *testing.T) {
	// Its own, and without autovacuum, since all transactions of a server draw from one sequence of ids.
	url := pgtest.Server(t, map[string]string{"autovacuum": "off", "fsync": "off"}).URL("postgres")
	watcher := poolOn(t, url)
	makeSequences(t, watcher)
	for mode, want := range costs {
		for name, execMode := range execModes {
			t.Run(mode+"/"+name, func(t *testing.T) {
				m := newMeter(t, mode, url, watcher, execMode)
				for range 4 { // the first ones warm each connection's statements
					m.takeSteps()
				}
				for step, got := range m.took {
					want, ok := want[step]
					if !ok {
						t.Errorf("%q has no price; it took %+v", step, got)
						continue
					}
					want.flights, want.statements, want.behind = want.flights+want.behind, want.statements+want.behind, 0
					if got != want {
						t.Errorf("%q took, with what follows behind its answer, %+v, want %+v", step, got, want)
					}
				}
				if len(m.took) != len(want) {
					t.Errorf("%d steps were taken, want all %d", len(m.took), len(want))
				}
			})
		}
	}
}
