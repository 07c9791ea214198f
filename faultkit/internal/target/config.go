// Package target is the server that the kit does harm to: the library on a PostgreSQL, a charges handler, and a journal of
// what both did. It runs in a process of its own, which the kit starts from its own binary.
package target

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Variable is the environment variable that makes the kit's binary a target; it holds a Config.
const Variable = "FAULTKIT_TARGET"

// ClockTag is the build tag of a target whose clock can be set wrong.
const ClockTag = "faultkit_clock"

// Config says what a target is.
type Config struct {
	Slot          int           `json:"slot"` // its place among the targets
	Transactional bool          `json:"transactional"`
	DatabaseURL   string        `json:"database_url"` // with the exec mode and the pool's size
	Lease         time.Duration `json:"lease"`
	Wait          time.Duration `json:"wait"`    // for a key in progress
	Timeout       time.Duration `json:"timeout"` // of the store
	TTL           time.Duration `json:"ttl"`
	Journal       string        `json:"journal"` // the file to write to
	BankURL       string        `json:"bank_url"`
	Break         Break         `json:"break"`
}

// Ready is what a target prints once it listens.
type Ready struct {
	Addr string `json:"addr"`
}

// Stopped is what a target prints when it has stopped: what it left over.
type Stopped struct {
	Goroutines int `json:"goroutines"` // more than when it began
	Rewritten  int `json:"rewritten"`  // statements that Config.Break changed
}

// Environment returns c as an entry of a process's environment.
func (c Config) Environment() (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("target: %w", err)
	}
	return Variable + "=" + string(text), nil
}

// FromEnvironment returns the Config of this process, and false where it is no target.
func FromEnvironment() (c Config, ok bool, err error) {
	text, ok := os.LookupEnv(Variable)
	if !ok {
		return c, false, nil
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return c, true, fmt.Errorf("target: %s: %w", Variable, err)
	}
	return c, true, nil
}
