package rig

import "syscall"

// childAttributes have the kernel kill a child whose parent has died.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
