package storetest

import (
	"os"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// TestRun runs the suite on sound stores or, in a process that TestRunFindsFaults started, on a broken one.
func TestRun(t *testing.T) {
	if name, ok := os.LookupEnv(faultEnv); ok {
		Run(t, faultNamed(t, name).config)
		return
	}
	t.Run("leased", func(t *testing.T) { Run(t, soundLeased()) })
	t.Run("transactional", func(t *testing.T) { Run(t, onDatabase(faults{})) })
}

func soundLeased() Config {
	return Config{
		New: func(*testing.T) store.Store { return memory.New() },
		Pair: func(*testing.T) (a, b store.Store) {
			s := memory.New()
			return s, s
		},
	}
}

// onDatabase is a transactional store's whole configuration.
func onDatabase(f faults) Config {
	newStore := func() store.Store { return transactional{plain{newDatabase(f)}} }
	return Config{
		New: func(*testing.T) store.Store { return newStore() },
		Pair: func(*testing.T) (a, b store.Store) {
			s := newStore()
			return s, s
		},
		Leased:  func(_ *testing.T, s store.Store) store.Store { return leased{s.(transactional).plain} },
		Effects: func(_ *testing.T, s store.Store) Effects { return s.(transactional).handlerWrites() },
	}
}
