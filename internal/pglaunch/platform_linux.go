package pglaunch

import "syscall"

// setParentDeath has the kernel send sig to a child when the thread that started it ends.
func setParentDeath(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
