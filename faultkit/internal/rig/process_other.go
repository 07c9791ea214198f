//go:build !linux

package rig

import "syscall"

// childAttributes: here a child outlives a kit that is killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
