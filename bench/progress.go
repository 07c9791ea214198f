package main

import (
	"fmt"
	"os"
	"time"
)

// progress says what goes on: on a terminal in one line that changes, elsewhere in a line every few seconds.
type progress struct {
	out      *os.File
	terminal bool
	began    time.Time
	said     time.Time
}

const (
	terminalPace = 100 * time.Millisecond
	filePace     = 5 * time.Second
)

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, began: time.Now()}
}

func (p *progress) say(format string, args ...any) {
	pace := filePace
	if p.terminal {
		pace = terminalPace
	}
	if time.Since(p.said) < pace {
		return
	}
	p.said = time.Now()
	line := fmt.Sprintf("%5.0fs  ", time.Since(p.began).Seconds()) + fmt.Sprintf(format, args...)
	if p.terminal {
		p.print("\r\x1b[K" + line)
		return
	}
	p.print(line + "\n")
}

// done clears the line.
func (p *progress) done() {
	if p.terminal {
		p.print("\r\x1b[K")
	}
}

func (p *progress) print(text string) {
	//nolint:errcheck // who cannot be told goes without
	fmt.Fprint(p.out, text)
}
