//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package pglaunch

import "syscall"

// setParentDeath does nothing: a server that outlives its parent here is ended by the next Start in its folder.
func setParentDeath(*syscall.SysProcAttr, syscall.Signal) {}
