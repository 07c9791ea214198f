//go:build faultkit_clock

package target

import "time"

// setClock makes time.Now wrong by d. The standard library that this is built with has the function from the kit: see
// package rig.
func setClock(d time.Duration) error {
	time.SetClockOffset(d)
	return nil
}
