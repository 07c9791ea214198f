//go:build !faultkit_clock

package target

import (
	"errors"
	"time"
)

func setClock(time.Duration) error {
	return errors.New("this target was built without -tags " + ClockTag)
}
