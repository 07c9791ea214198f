package idempotency

import (
	"errors"
	"fmt"
	"slices"
)

// check says what is wrong with the options, all at once.
func (g *Guard) check() error {
	var errs []error
	if g.store == nil {
		errs = append(errs, errors.New("no store"))
	}
	if g.scope == nil {
		errs = append(errs, errors.New("the scope is not settled: say whose a key is with WithScope, "+
			"or WithSingleScope where all callers are one"))
	}
	if g.keep == nil {
		errs = append(errs, errors.New("WithKeep was given nil"))
	}
	if slices.ContainsFunc(g.observers, func(o Observer) bool { return o == nil }) {
		errs = append(errs, errors.New("WithObserver was given nil"))
	}
	if g.maxReply < 0 {
		errs = append(errs, fmt.Errorf("the largest reply is %d bytes, and cannot be less than 0", g.maxReply))
	}
	if g.maxWaiters < 0 {
		errs = append(errs, fmt.Errorf("the most that may wait is %d, and cannot be less than 0", g.maxWaiters))
	}
	if g.header == "" {
		errs = append(errs, errors.New("the key's header has no name"))
	}
	if g.sealer != nil {
		errs = append(errs, g.sealer.faults...)
		if g.definitions[0].name != secretV1(nil).name {
			errs = append(errs, errors.New("WithEncryption needs WithFingerprintSecret: "+
				"a plain digest of the request beside the reply would give it away"))
		}
	}
	if g.acceptClear && g.sealer == nil {
		errs = append(errs, errors.New("WithUnencryptedReplies needs WithEncryption"))
	}
	errs = append(errs, g.faults...)
	if err := g.policy.check(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("idempotency: %w", err)
	}
	return nil
}
